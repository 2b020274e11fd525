"""Findings made by hand, to see what tables, claims and reports make of them."""

from dendrax.paper import _published as published
from dendrax.paper._divergence import RULES
from dendrax.paper._store import Finding

MADE = {"name": "tiny", "model": "MLP(3)", "data": "images", "batch_size": 2}


def divergence(column, distance, row="MLP", dtype="float64"):
    settings = {**MADE, "row": row, "dtype": dtype, "column": column}
    return Finding(
        "divergence", f"{row}: {column}", settings, {"distance": distance, "norm": 2.0}, 1.0
    )


def as_published():
    """What a perfect reproduction would find."""
    found = []
    for row in published.ROWS:
        off = published.TABLE1[row]
        values = {"original": off, "wavefront": 0.0, "dynamics": 0.0}
        for column in RULES:
            found.append(divergence(column, values.get(column, 3.0), row))
    return found


def speed(row, zil=1.0, il=10.0, noise=0.0, dtype="float32"):
    settings = {**MADE, "row": row, "dtype": dtype, "num_steps": 100}
    result = {
        "bp_ms": 1.0,
        "zil_ms": zil,
        "il_ms": il,
        "zil_over_bp": zil,
        "block_ratios": [zil - noise, zil, zil + noise] * 5,
        "il_over_bp": il,
    }
    return Finding("speed", row, settings, result, 1.0)


def run(
    rule, weights, accuracy=0.9, *, course="MLP", seed=0, data="some images", energy=None, rate=0.1
):
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
    settings |= {"model": "MLP(3)", "batch_size": 2, "learning_rate": rate}
    return Finding("training", f"{course}, {rule}", settings, {"points": points}, 2.0)


def game(rule, scores, weights=(), name="Pong"):
    result = {"scores": scores}
    if rule != "random":
        result |= {"steps": list(range(len(scores))), "weights": list(weights)}
    return Finding("playing", f"{name}, {rule}", {"game": name, "rule": rule}, result, 1.0)


def sweep(plot="steps", label="IL", distances=(0.9, 0.5, None)):
    settings = {"plot": plot, "label": label, "model": "MLP"}
    result = {"places": [1, 10, 100][: len(distances)], "distances": list(distances)}
    return Finding("beyond", f"{plot} {label}", settings, result, 1.0)


def wave(sizes=((1.0, 0.5), (0.0, 0.2)), label="Z-IL"):
    settings = {"plot": "wave", "label": label}
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
        game("BP", [[1.0, 2.0]] * 3 + [[8.0, 9.0]] * 3, "abcdef"),
        game("Z-IL", [[1.0, 2.0]] * 3 + [[8.0, 9.0]] * 3, "abcdef"),
        sweep(),
        wave(),
    ]
