"""The layout is the architecture: a file imports only from files earlier in the flow."""

import ast
import pathlib
import subprocess
import sys

import dendrax

ROOT = pathlib.Path(dendrax.__file__).parent
FLOW = (
    "_compat",
    "support",
    "graph",
    "local",
    "tracing",
    "vertices",
    "walk",
    "inference",
    "rules",
    "_settings",
    "_api",
    "_graphs",
    "_infer",
    "equinox",
    "nnx",
    "certify",
    "placement",
    "draw",
    "named",
    "models",
    "data",
    "train",
    "paper",
    "cli",
)
EXTRAS = {"equinox", "optax", "rich", "typer", "matplotlib", "PIL", "ale_py", "orbax", "flax"}
# Never imported by the core.
OUTSIDE = ("equinox", "nnx", "models", "data", "train", "paper", "cli")


def _imports(path: pathlib.Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.update({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)})
    return found


def _room(path: pathlib.Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def _place(name: str) -> int | None:
    return FLOW.index(name) if name in FLOW else None


def test_files_import_only_from_earlier_in_the_flow():
    for path in ROOT.rglob("*.py"):
        own = _room(path)
        if own == "__init__":
            continue
        assert own in FLOW, f"{own} has no place in the flow"
        for name in _imports(path):
            parts = name.split(".")
            if parts[0] == "dendrax" and len(parts) > 1 and _place(parts[1]) is not None:
                assert _place(parts[1]) <= _place(own), f"{path.name} imports {name}"


def test_only_compat_touches_jax_internals():
    for path in ROOT.rglob("*.py"):
        internal = {n for n in _imports(path) if n.startswith(("jax._src", "jax.extend"))}
        assert not internal or path.name == "_compat.py", f"{path.name} imports {internal}"


def test_only_the_local_folder_differentiates():
    """`jax.vjp` only ever on one vertex's own function: no other folder of the core may call it."""
    forbidden = {"grad", "value_and_grad", "vjp", "jvp", "linearize", "linear_transpose"}
    allowed = {("local", "vjp"), ("certify", "value_and_grad")}
    core = [path for path in ROOT.rglob("*.py") if _room(path) not in OUTSIDE]
    for path in core:
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "jax"
                and node.attr in forbidden
            ):
                known = (path.parent.name, node.attr) in allowed
                assert known, f"{path.name} calls jax.{node.attr}"


def test_only_public_functions_speak_for_themselves():
    """`@public` names the function below it; helpers leave it to whoever called them."""
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                said = [name.split(".")[-1] for name in _public_names(node)]
                allowed = said[0][0].isupper() if said and node.name == "__post_init__" else False
                assert allowed or said in ([], [node.name]), f"{path.name}: {node.name}"


def _public_names(function: ast.FunctionDef) -> list[str]:
    """What is given to `public` anywhere in a function, or above it."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    return [ast.literal_eval(c.args[0]) for c in calls if getattr(c.func, "id", "") == "public"]


def test_the_core_needs_only_jax_and_numpy():
    core = [path for path in ROOT.rglob("*.py") if _room(path) not in OUTSIDE]
    for path in core:
        outside = {name.split(".")[0] for name in _imports(path)} & EXTRAS
        if path.parent.name == "draw":
            outside.discard("matplotlib")  # only when a plot is asked for, see the next test
        assert not outside, f"{path.name} imports {outside}"


def test_importing_dendrax_imports_no_extra():
    program = f"import dendrax, sys; print(sorted({EXTRAS} & set(sys.modules)))"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"


def test_the_explorer_does_not_need_the_training():
    program = (
        "import sys; sys.modules['optax'] = None; "
        "from dendrax.cli import _data, _explore, _show; print('dendrax.train' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "False"


def test_every_folder_stands_in_the_table():
    text = (ROOT.parents[1] / "CONTRIBUTING.md").read_text().split("### The folders")[1]
    rooms = {_room(path) for path in ROOT.rglob("*.py")} - {"__init__"}
    missing = [name for name in rooms if f"`{name}/`" not in text and f"`{name}.py`" not in text]
    assert not missing


def test_every_folder_of_the_core_says_what_it_is_for():
    """A front door has a docstring and exports, and nothing else."""
    for name in FLOW[: FLOW.index("_settings")]:
        door = ROOT / name / "__init__.py"
        if door.exists():
            first, *rest = ast.parse(door.read_text()).body
            assert isinstance(first, ast.Expr), f"{name} does not say what it is for"
            assert all(isinstance(node, ast.ImportFrom) for node in rest), f"{name} does more"


def test_folders_of_the_core_are_entered_by_their_front_doors():
    core = FLOW[FLOW.index("support") : FLOW.index("rules")]
    for path in ROOT.rglob("*.py"):
        for name in _imports(path):
            parts = name.split(".")
            if parts[0] != "dendrax" or len(parts) < 3 or parts[1] not in core:
                continue
            private = parts[2].startswith("_")
            assert not private or _room(path) == parts[1], f"{path} imports {name}"
