"""The commands behind ``tightmap``; main.py says how they treat outputs and signals, and runs them.

Everything heavy is imported inside the commands, so that --help answers at once.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tightmap.cli.batch import batch
from tightmap.cli.bench import bench

if TYPE_CHECKING:
    from tightmap.cli.outputs import Session
    from tightmap.model.model import Model

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _tell_version(context: typer.Context, wanted: bool) -> None:
    if wanted:
        import tightmap

        context.obj.say(f"tightmap {tightmap.__version__}\n")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="say which version this is")
    ] = False,
) -> None:
    """Find the most probable labelling (MAP) of a discrete Markov random field, with certified lower bounds."""


ModelPath = Annotated[str, typer.Argument(metavar="MODEL", help="model file: .uai .LG .h5 .npz .wcsp .cfn .dd ...")]
JsonPath = Annotated[str | None, typer.Option("--json", metavar="FILE|-", help="write one JSON object, - for stdout")]
Values = Annotated[
    str | None,
    typer.Option(metavar="WHAT", help="what the tables of a .uai or .LG file hold: potentials, logs or costs"),
]


def check_seed(seed: int) -> None:
    from tightmap.errors import OptionError

    if seed < 0:
        raise OptionError(f"--seed must be at least 0, got {seed}")


def _load(session: Session, path: str, evidence: str | None = None, values: str | None = None) -> Model:
    """Read a model; what the reader has to remark is said on standard error."""
    import warnings

    from tightmap.io import FormatWarning, read, read_evidence

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", FormatWarning)
        try:
            model = read(path) if values is None else read(path, values=values)
            if evidence is not None:
                model.clamp(read_evidence(evidence))
        finally:
            for warning in heard:
                session.remark(f"tightmap: {warning.message}")
    return model


def parse_options(pairs: list[str]) -> dict[str, Any]:
    from tightmap.errors import OptionError

    out: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise OptionError(f"--option takes KEY=VALUE, got {pair!r}")
        name = key.replace("-", "_")
        if name in out:
            raise OptionError(f"--option {name} is given twice")
        out[name] = value
    return out


@app.command()
def solve(
    context: typer.Context,
    path: ModelPath,
    method: Annotated[str, typer.Option(help="see `tightmap methods`")] = "auto",
    option: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="option of the method")] = None,
    time_limit: Annotated[float | None, typer.Option(metavar="S", help="seconds of solving")] = None,
    wall_limit: Annotated[
        float | None, typer.Option(metavar="S", help="seconds for everything, compilation included")
    ] = None,
    max_iterations: Annotated[int | None, typer.Option(metavar="N")] = None,
    seed: Annotated[int, typer.Option(metavar="N")] = 0,
    threads: Annotated[int | None, typer.Option(metavar="N", help="all cores by default")] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="worker processes that share a grid model (admm)")
    ] = None,
    evidence: Annotated[
        str | None, typer.Option(metavar="FILE", help=".evid file: variables with known labels")
    ] = None,
    values: Values = None,
    init: Annotated[str | None, typer.Option(metavar="FILE", help="labels to start from")] = None,
    json_path: JsonPath = None,
    labels: Annotated[str | None, typer.Option(metavar="FILE|-", help="write the labelling (.txt .npy .MPE)")] = None,
    trace: Annotated[
        str | None, typer.Option(metavar="FILE.csv|-", help="write one line per recorded iteration")
    ] = None,
    plot: Annotated[str | None, typer.Option(metavar="FILE.png", help="draw energy and bound against time")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="no progress")] = False,
) -> None:
    """Solve a model: print the energy, what is proven about it, and write what is asked for."""
    from tightmap.cli.solve_outputs import SolveOutputs

    begin = time.perf_counter()
    session: Session = context.obj
    check_seed(seed)
    outputs = SolveOutputs(session, json_path, labels, trace, plot)
    outputs.check({"MODEL": path, "--evidence": evidence})
    import tightmap as tm
    from tightmap.cli.compilation import compile_meanwhile
    from tightmap.cli.progress import Progress
    from tightmap.driver import left_of
    from tightmap.registry import make_solver
    from tightmap.runtime import clock

    options = parse_options(option or [])
    if workers is not None:
        options["workers"] = workers
        method = "admm" if method == "auto" else method
    make_solver(method, dict(options))  # a wrong name is an error before a large model is read
    clock.announce_always(not quiet)
    model = _load(session, path, evidence, values)
    start = None if init is None else tm.read_labels(init)
    with compile_meanwhile(), session.guard.patient():  # from here on a signal ends the run, not the command
        with Progress(enabled=not quiet and sys.stderr.isatty(), time_limit=time_limit) as progress:
            result = tm.solve(
                model,
                method,
                time_limit=time_limit,
                max_iterations=max_iterations,
                seed=seed,
                threads=threads,
                init=start,
                callback=progress.update if progress.enabled else None,
                trace=trace is not None or plot is not None,
                wall_limit=left_of(wall_limit, begin),
                **options,
            )
        session.guard.renew()
        signals = session.guard.count
        outputs.write(model, path, result, seed, threads)
        outputs.summarise(result, quiet)
    outputs.draw(result, interrupted=session.guard.count > signals)
    if result.status is tm.Status.INFEASIBLE:
        raise typer.Exit(3)
    if result.status is tm.Status.INTERRUPTED:
        raise typer.Exit(130)


@app.command()
def info(context: typer.Context, path: ModelPath, values: Values = None, json_path: JsonPath = None) -> None:
    """Say what is in a model: sizes, kinds of factors, what is shared, hard constraints."""
    from tightmap.cli.outputs import plain_path
    from tightmap.view.describe import describe, describe_text

    session: Session = context.obj
    json_path = plain_path(json_path)
    session.check({"--json": json_path}, {"MODEL": path})
    facts = describe(_load(session, path, values=values))
    if json_path is not None:
        session.attempt("--json", json_path, lambda: session.put(json_path, json.dumps({"path": path} | facts) + "\n"))
    if json_path != "-":
        session.say(f"{path}\n{describe_text(facts)}\n")


@app.command()
def convert(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="IN")],
    target: Annotated[str, typer.Argument(metavar="OUT")],
    values: Values = None,
) -> None:
    """Read a model and write it in another format, chosen by the suffix."""
    from pathlib import Path

    from tightmap.errors import ModelError
    from tightmap.io import FORMATS, write
    from tightmap.io.source import Source

    suffix = Source(Path(target)).suffix
    able = [s for s, (_, writer) in FORMATS.items() if writer is not None]
    if suffix not in able:
        wrong = f"{suffix} files" if suffix else "files without a suffix"
        raise ModelError(f"OUT {target}: models are not written as {wrong}; formats to write: {', '.join(able)}")
    context.obj.check({"OUT": target})
    write(_load(context.obj, source, values=values), target)


@app.command()
def methods(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="explain this one")] = None,
    json_path: JsonPath = None,
) -> None:
    """List the methods with what they need and give, or explain one: options, defaults, formulas."""
    from tightmap.cli.outputs import plain_path
    from tightmap.registry import describe_method
    from tightmap.registry import methods as table

    session: Session = context.obj
    json_path = plain_path(json_path)
    session.check({"--json": json_path})
    rows: Any = table() if name is None else describe_method(name)
    if json_path is not None:
        session.attempt("--json", json_path, lambda: session.put(json_path, json.dumps(rows, default=str) + "\n"))
    if json_path == "-":
        return
    if name is not None:
        session.say(_explained(rows))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    view = Table(box=None, pad_edge=False)
    for column in ("method", "order", "needs", "bound", "what it does"):
        view.add_column(column, overflow="fold")
    for row in rows:
        order = "any" if row["max_order"] is None else f"<= {row['max_order']}"
        missing = "" if row["installed"] else f"not installed ({_how_to_install(row['name'])}): "
        cells = row["name"], order, row["needs"], "yes" if row["gives_bound"] else "no", missing + row["summary"]
        view.add_row(*map(Text, cells))  # as they are: "tightmap[cpsat]" is no markup
    # a pipe has no width: leave room for whole lines instead of folding them at 80
    terminal = sys.stdout is not None and sys.stdout.isatty()
    console = Console(width=None if terminal else 160)
    with console.capture() as captured:
        console.print(view)
    session.say(captured.get())


def _how_to_install(method: str) -> str:
    return f'pip install "tightmap[{method}]"'


def _explained(row: dict[str, Any]) -> str:
    """A page about one method."""
    able = [key.replace("_", " ") for key, value in row["capabilities"].items() if value is True]
    lines = [
        f"{row['name']}: {row['summary']}",
        f"  takes: {row['needs']}",
        f"  {', '.join(able)}",
        *([] if row["installed"] else [f"  not installed: {_how_to_install(row['name'])}"]),
        "",
        row["about"],
        "",
    ]
    lines.append("Options (name, type, default):" if row["options"] else "No options.")
    for option, default in row["options"].items():
        lines.append(f"  {option}  {row['option_types'][option]}  {default}")
    return "\n".join([*lines, "", row["about_options"]]).rstrip() + "\n"


@app.command("compile")
def compile_(
    context: typer.Context,
    chosen: Annotated[list[str] | None, typer.Option("--method", "-m", metavar="NAME", help="repeatable")] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="at a time; all cores by default")] = None,
) -> None:
    """Compile the kernels of the methods now instead of during their first runs."""
    from tightmap.cli.compilation import compile_in_processes
    from tightmap.registry import METHODS, make_solver

    session: Session = context.obj
    for name in chosen or []:
        make_solver(name, {})  # an unknown name is an error before anything is compiled
    for name, seconds in compile_in_processes(chosen or list(METHODS), processes, session.guard):
        session.say(f"{name}: {seconds:.1f} s\n")
    if session.guard.first is not None:
        session.remark(session.guard.farewell)


@app.command()
def demo(
    context: typer.Context,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE.png")] = "demo.png",
    time_limit: Annotated[float, typer.Option(metavar="S", help="seconds for the solver")] = 20.0,
) -> None:
    """Solve a real model and write a picture of it."""
    session: Session = context.obj
    session.check({"--output": output})
    from tightmap.cli.outputs import named
    from tightmap.view.plot import check_format, save

    with named("--output"):
        check_format(output)
    from tightmap.cli.compilation import compile_meanwhile
    from tightmap.demo import prepare

    shown = prepare()
    with compile_meanwhile(), session.guard.patient():  # Ctrl-C ends the run; what it found is shown and drawn
        shown.solve(time_limit)
        session.guard.renew()
        session.say(shown.summary() + "\n")
    session.guard.farewell = f"tightmap: --output {output}: not drawn, interrupted"
    if session.attempt("--output", output, lambda: save(shown.figure(), output)):
        session.say(f"picture written to {output}\n")


app.command()(batch)
app.command()(bench)
