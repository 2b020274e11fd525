"""Certificates: how far a rule's gradient is from backprop's, and what its updates read."""

from dendrax.certify.audit import Audit as Audit
from dendrax.certify.audit import audit as audit
from dendrax.certify.check import Certificate as Certificate
from dendrax.certify.check import check as check
