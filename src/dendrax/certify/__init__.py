"""Certificates: what dendrax claims about a function, checked on that function."""

from dendrax.certify.check import Certificate as Certificate
from dendrax.certify.check import check as check
