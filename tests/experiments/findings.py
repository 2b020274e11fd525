"""Findings made by hand, to see what tables, claims and reports make of them."""

from dendrax.experiments import _published as published
from dendrax.experiments._divergence import RULES
from dendrax.experiments._store import Finding

NAMES = {"row": "MLP", "name": "tiny", "dtype": "float64"}


def divergence(column, distance, row="MLP", dtype="float64"):
    settings = {"row": row, "name": "tiny", "dtype": dtype, "column": column}
    return Finding("divergence", f"{row}: {column}", settings, {"distance": distance}, 1.0)


def as_published():
    """What a perfect reproduction would find."""
    found = []
    for row in published.ROWS:
        off = published.TABLE1[row]
        values = {"original": off, "wavefront": 0.0, "dynamics": 0.0}
        for column in RULES:
            found.append(divergence(column, values.get(column, 3.0), row))
    return found


def speed(row, zil=1.0, il=10.0, low=0.99, dtype="float32"):
    settings = {"row": row, "name": "tiny", "dtype": dtype, "num_steps": 100}
    result = {
        "bp_ms": 1.0,
        "zil_ms": zil,
        "il_ms": il,
        "zil_over_bp": zil,
        "zil_over_bp_low": low,
        "zil_over_bp_high": zil + 0.01,
        "il_over_bp": il,
    }
    return Finding("speed", row, settings, result, 1.0)


def run(rule, weights, accuracy=0.9, *, course="MLP", seed=0, data="some images", energy=None):
    points = [
        {
            "update": 10 * (i + 1),
            "seconds": 0.1 * (i + 1),
            "loss": 1.0,
            "accuracy": accuracy,
            "energy": energy,
            "weights": digest,
        }
        for i, digest in enumerate(weights)
    ]
    settings = {"course": course, "rule": rule, "seed": seed, "data": data, "num_updates": 20}
    return Finding("training", f"{course}, {rule}", settings, {"points": points}, 2.0)


def game(rule, scores, weights=(), name="Pong"):
    result = {"scores": scores}
    if rule != "random":
        result |= {"steps": list(range(len(scores))), "weights": list(weights)}
    return Finding("playing", f"{name}, {rule}", {"game": name, "rule": rule}, result, 1.0)


def sweep(plot="steps", label="IL", distances=(0.9, 0.5, None)):
    settings = {"plot": plot, "label": label}
    result = {"places": [1, 10, 100][: len(distances)], "distances": list(distances)}
    return Finding("beyond", f"{plot} {label}", settings, result, 1.0)


def wave(sizes=((1.0, 0.5), (0.0, 0.2))):
    settings = {"plot": "wave", "label": "Z-IL"}
    return Finding("beyond", "wave", settings, {"sizes": [list(row) for row in sizes]}, 1.0)


def everything():
    """One of each kind."""
    return [
        *as_published(),
        *(speed(row) for row in published.ROWS),
        run("BP", ["a", "b"]),
        run("Z-IL", ["a", "b"]),
        run("IL", ["c", "d"], energy=0.5),
        game("random", [1.0, 2.0, 3.0]),
        game("BP", [[1.0, 2.0], [3.0, 4.0]] * 3, "abcdef"),
        game("Z-IL", [[1.0, 2.0], [3.0, 4.0]] * 3, "abcdef"),
        sweep(),
        wave(),
    ]
