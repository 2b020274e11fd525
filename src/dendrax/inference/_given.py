"""What a rule hands to the network is checked here: values and parameters, each of its type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from dendrax.graph import Port
from dendrax.support import complain


def check_values(net: Any, given: Any) -> None:
    """What is looked at has one value for each value node, of its type."""
    if not isinstance(given, Mapping) or given.keys() != net.view.nodes.keys():
        raise complain(
            ValueError,
            "what a rule looks at is not one value for each value node.",
            remedy="Hand net.look a dictionary with the keys of net.values.",
        )
    names = {port: f"value node {net.view.vertex(port).name}" for port in given}
    _check_types(net, given, names, "net.values")


def check_parameters(net: Any, given: Any) -> None:
    """Other parameters stand in the place of the network's own."""
    if not isinstance(given, Mapping) or not given.keys() <= net.parameters.keys():
        raise complain(
            ValueError,
            "the parameters that a rule looks at are not those of the network.",
            remedy="Hand net.look a dictionary with keys of net.parameters.",
        )
    names = {port: f"parameter {net.view.graph[port.vertex].name}" for port in given}
    _check_types(net, given, names, "net.parameters")


def _check_types(
    net: Any, given: Mapping[Port, Any], names: Mapping[Port, str], place: str
) -> None:
    for port, value in given.items():
        aval, found = net.view.aval(port), jax.typeof(value)
        if (found.shape, found.dtype) != (aval.shape, aval.dtype):
            raise complain(
                ValueError,
                f"the {names[port]} has type {aval.dtype} and shape "
                f"{aval.shape}, and the rule looks at one of {found.dtype} and {found.shape}.",
                remedy=f"Keep shapes and types as they are in {place}.",
            )
