"""Two, four and eight real host devices, each run in a process of its own."""

import json
import subprocess
import sys

import pytest

RUNS = [
    ("zil", "mlp", "float32"),
    pytest.param("il", "mlp", "float64", marks=pytest.mark.slow),
    pytest.param("zil", "transformer", "float32", marks=pytest.mark.slow),
    pytest.param("zil", "resnet18", "float32", marks=pytest.mark.slow),
    pytest.param("zil", "resnet18", "float64", marks=pytest.mark.slow),
    pytest.param("zil", "fc_resnet", "float64", marks=pytest.mark.slow),
    pytest.param("zil", "transformer", "float64", marks=pytest.mark.slow),
    pytest.param("il", "transformer", "float32", marks=pytest.mark.slow),
    pytest.param("il", "fc_resnet", "float64", marks=pytest.mark.slow),
    pytest.param("il", "resnet18", "float64", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("rule", "model", "dtype"), RUNS)
def test_more_devices_same_gradient(rule, model, dtype):
    program = [sys.executable, "-m", "tests.placement.eight", rule, model, dtype]
    run = subprocess.run(program, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    for count, row in found.items():
        expected = sorted(
            (a, b) for a in range(int(count)) for b in (a - 1, a + 1) if 0 <= b < int(count)
        )
        assert row["same"], count  # bit for bit, as one device
        assert row["close"], count  # and, to rounding, as one compiled program
        assert row["local"] and row["counted"]
        assert [tuple(link) for link in row["links"]] == expected
        assert row["devices"] > 1  # gradients stay where their parameters live
