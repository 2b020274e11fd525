"""Energies in the words of the command line and of a plan."""

import pytest

from dendrax import IL, Categorical, Gaussian, Huber
from dendrax.named import find_rule, read_named


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("IL(energies=Huber(delta=0.5))", IL(energies=Huber(0.5))),
        ("IL(energies='Huber(delta=0.5)')", IL(energies=Huber(0.5))),
        ("IL(gamma=0.2, energies=Gaussian(precision=2.0))", IL(gamma=0.2, energies=Gaussian(2.0))),
        ("IL(energies={'output': Categorical()})", IL(energies={"output": Categorical()})),
    ],
)
def test_energies_by_name(written, expected):
    named = read_named("rule", written)
    assert find_rule(named) == expected
    assert find_rule(read_named("rule", str(named))) == expected  # as a run's folder holds it


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("IL(energies=Hubber())", "cannot be read"),
        ("IL(energies=Huber(delta=open('x')))", "cannot be read"),
        ("IL(energies='Hubber()')", r"no energy 'Hubber'. Did you mean 'Huber'"),
        ("IL(energies='Huber(width=1)')", "energy Huber has no setting 'width'"),
        ("IL(energies='Huber(delta=-1)')", "delta=-1 is not a positive number"),
        ("IL(gamma=Huber())", "gamma='Huber\\(\\)' is not a positive"),
    ],
)
def test_mistakes(written, message):
    with pytest.raises(ValueError, match=message):
        find_rule(read_named("rule", written))
