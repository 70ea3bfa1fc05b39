"""The command line: solve, info, convert, methods, compile, bench, demo.

Everything heavy is imported inside the commands, so that --help answers at once.  Results go to standard output,
progress and errors to standard error.  Exit codes: 0 solved or stopped by a limit, 2 bad input or usage, 3 proven
infeasible, 130 interrupted (the best so far is still written).
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tightmap.bench.cli import bench

if TYPE_CHECKING:
    from tightmap.model import Model
    from tightmap.result import Result

app = typer.Typer(
    help="Find the most probable labelling (MAP) of a discrete Markov random field, with certified lower bounds.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

ModelPath = Annotated[str, typer.Argument(metavar="MODEL", help="model file: .uai .LG .h5 .npz .wcsp .cfn .dd ...")]
JsonPath = Annotated[str | None, typer.Option("--json", metavar="FILE|-", help="write one JSON object, - for stdout")]


def _write_text(path: str, text: str) -> None:
    """Write to standard output for "-", else to a temporary file that takes the place of the old one when complete."""
    if path == "-":
        sys.stdout.write(text)
        return
    from tightmap.io.atomic import writing

    with writing(path) as file:
        file.write(text.encode())


def _load(path: str, evidence: str | None = None) -> Model:
    from tightmap.io import read

    model = read(path)
    if evidence is not None:
        from tightmap.io import read_evidence

        model.clamp(read_evidence(evidence))
    return model


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _options(pairs: list[str]) -> dict[str, Any]:
    from tightmap.errors import OptionError

    out: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise OptionError(f"--option takes KEY=VALUE, got {pair!r}")
        out[key.replace("-", "_")] = value
    return out


@app.command()
def solve(
    path: ModelPath,
    method: Annotated[str, typer.Option(help="see `tightmap methods`")] = "auto",
    option: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="option of the method")] = None,
    time_limit: Annotated[float | None, typer.Option(metavar="S", help="seconds")] = None,
    max_iterations: Annotated[int | None, typer.Option(metavar="N")] = None,
    seed: Annotated[int, typer.Option(metavar="N")] = 0,
    threads: Annotated[int | None, typer.Option(metavar="N", help="all cores by default")] = None,
    evidence: Annotated[
        str | None, typer.Option(metavar="FILE", help=".evid file: variables with known labels")
    ] = None,
    init: Annotated[str | None, typer.Option(metavar="FILE", help="labels to start from")] = None,
    json_path: JsonPath = None,
    labels: Annotated[str | None, typer.Option(metavar="FILE", help="write the labelling (.txt .npy .MPE)")] = None,
    trace: Annotated[str | None, typer.Option(metavar="FILE.csv", help="write one line per recorded iteration")] = None,
    plot: Annotated[str | None, typer.Option(metavar="FILE.png", help="draw energy and bound against time")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="no progress")] = False,
) -> None:
    """Solve a model: print the energy, what is proven about it, and write what is asked for."""
    import tightmap as tm
    from tightmap import clock

    clock.announce_always(not quiet)
    model = _load(path, evidence)
    start = None if init is None else tm.read_labels(init)
    with _Progress(enabled=not quiet and sys.stderr.isatty(), time_limit=time_limit) as progress:
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
            **_options(option or []),
        )
    if labels is not None:
        tm.write_labels(result.labels, labels)
    if trace is not None:
        _write_trace(result, trace)
    if plot is not None:
        from tightmap import plot as plots

        plots.save(plots.convergence(result), plot)
    if json_path is not None:
        record = {"model": _shape(model, path)} | _outcome(result, seed, threads)
        _write_text(json_path, json.dumps(record) + "\n")
    if json_path != "-":
        print(result.summary())
    if result.status is tm.Status.INFEASIBLE:
        raise typer.Exit(3)
    if result.status is tm.Status.INTERRUPTED:
        raise typer.Exit(130)


def _shape(model: Model, path: str) -> dict[str, Any]:
    return {
        "path": path,
        "variables": model.num_variables,
        "factors": model.num_factors,
        "max_order": model.max_order,
        "max_labels": model.max_labels,
    }


def _outcome(result: Result, seed: int, threads: int | None) -> dict[str, Any]:
    from tightmap import parallel

    return {
        "method": result.method,
        "options": result.options,
        "seed": seed,
        "threads": threads or parallel.available(),
        "status": result.status.name,
        "energy": _number(result.energy),
        "lower_bound": _number(result.lower_bound),
        "gap": _number(result.gap),
        "feasible": result.feasible,
        "iterations": result.iterations,
        "elapsed": result.elapsed,
        "labels": result.labels.tolist(),
    }


def _write_trace(result: Result, path: str) -> None:
    import csv
    import io

    columns: list[str] = []
    for row in result.trace:
        columns += [c for c in row if c not in columns]
    out = io.StringIO()
    writer = csv.DictWriter(out, columns or ["iteration", "elapsed", "energy", "lower_bound"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(result.trace)
    _write_text(path, out.getvalue())


class _Progress:
    """One line on a terminal that says how the run goes; nothing anywhere else."""

    def __init__(self, enabled: bool, time_limit: float | None) -> None:
        self.enabled = enabled
        self.time_limit = time_limit
        self.status: Any = None
        self.last = -1.0

    def __enter__(self) -> _Progress:
        if self.enabled:
            from rich.console import Console

            self.status = Console(stderr=True).status("starting")
            self.status.start()
        return self

    def update(self, info: Any) -> None:
        if info.elapsed - self.last < 0.1:
            return
        self.last = info.elapsed
        text = f"iteration {info.iteration}  energy {info.energy:.8g}"
        if math.isfinite(info.lower_bound):
            text += f"  bound {info.lower_bound:.8g}  gap {info.energy - info.lower_bound:.3g}"
        text += f"  {info.elapsed:.1f} s" + (f" of {self.time_limit:g}" if self.time_limit else "")
        self.status.update(text)

    def __exit__(self, *_: object) -> None:
        if self.status is not None:
            self.status.stop()


@app.command()
def info(path: ModelPath, json_path: JsonPath = None) -> None:
    """Say what is in a model: sizes, kinds of factors, what is shared, hard constraints."""
    from tightmap.describe import describe, describe_text

    facts = describe(_load(path))
    if json_path is not None:
        _write_text(json_path, json.dumps({"path": path} | facts) + "\n")
    if json_path != "-":
        print(f"{path}\n{describe_text(facts)}")


@app.command()
def convert(
    source: Annotated[str, typer.Argument(metavar="IN")], target: Annotated[str, typer.Argument(metavar="OUT")]
) -> None:
    """Read a model and write it in another format, chosen by the suffix."""
    from tightmap.io import write

    write(_load(source), target)


@app.command()
def methods(json_path: JsonPath = None) -> None:
    """List the methods with what they need and give."""
    from tightmap.registry import methods as table

    rows = table()
    if json_path is not None:
        _write_text(json_path, json.dumps(rows, default=str) + "\n")
    if json_path == "-":
        return
    from rich.console import Console
    from rich.table import Table

    view = Table(box=None, pad_edge=False)
    for column in ("method", "order", "needs", "bound", "what it does"):
        view.add_column(column, overflow="fold")
    for row in rows:
        order = "any" if row["max_order"] is None else f"<= {row['max_order']}"
        view.add_row(row["name"], order, row["needs"], "yes" if row["gives_bound"] else "no", row["summary"])
    # a pipe has no width: leave room for whole lines instead of folding them at 80
    Console(width=None if sys.stdout.isatty() else 160).print(view)


@app.command("compile")
def compile_(
    chosen: Annotated[list[str] | None, typer.Option("--method", "-m", metavar="NAME", help="repeatable")] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="at a time; all cores by default")] = None,
) -> None:
    """Compile the kernels of the methods now instead of during their first runs."""
    from tightmap.registry import METHODS, make_solver
    from tightmap.warm import compile_kernels

    for name in chosen or []:
        make_solver(name, {})  # an unknown name is an error before anything is compiled
    for name, seconds in compile_kernels(chosen or list(METHODS), processes):
        print(f"{name}: {seconds:.1f} s", flush=True)


@app.command()
def demo(
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE.png")] = "demo.png",
    time_limit: Annotated[float, typer.Option(metavar="S", help="seconds for the solver")] = 20.0,
) -> None:
    """Solve a real model and write a picture of it."""
    from tightmap.demo import run

    print(run(Path(output), time_limit))


app.command()(bench)


def main() -> None:
    """Entry point: bad input is one sentence and exit code 2, never a traceback."""
    from tightmap.errors import ModelError, OptionError

    try:
        app()
    except (ModelError, OptionError) as error:
        print(f"tightmap: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("tightmap: interrupted", file=sys.stderr)
        sys.exit(130)
    except OSError as error:
        print(f"tightmap: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
