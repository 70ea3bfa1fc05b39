"""``tightmap bench``: run a suite, show its tables, write its report.

``bench`` is mounted as a command of ``tightmap``.  Everything heavy is imported inside of it.  Progress goes to
standard error, tables to standard output.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tightmap.bench.records import Row
    from tightmap.bench.suites import Suite

app = typer.Typer(help="Run a benchmark and report it.", add_completion=False, pretty_exceptions_enable=False)


@app.command()
def bench(
    suite: Annotated[str, typer.Argument(metavar="SUITE", help="smoke, paper, peers, or a suite of your own (.toml)")],
    family: Annotated[list[str] | None, typer.Option(help="only e.g. inpainting, or stereo/venus (repeatable)")] = None,
    methods: Annotated[str | None, typer.Option(metavar="A,B,...", help="methods, all applicable by default")] = None,
    time_limit: Annotated[float | None, typer.Option(metavar="S", help="seconds per run", min=0.0)] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="of the built-in suites")] = 0,
    threads: Annotated[int | None, typer.Option(metavar="N", help="threads per run", min=1)] = None,
    jobs: Annotated[
        int | None, typer.Option(metavar="N", help="runs at a time; more than 1 blurs times", min=1)
    ] = None,
    memory_limit: Annotated[float | None, typer.Option(metavar="MIB", help="per run; more is killed")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE.jsonl", help="results; finished runs are kept")] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="write a page with tables and charts")
    ] = None,
    format: Annotated[str, typer.Option(help="terminal, markdown, csv or latex")] = "terminal",
    retry: Annotated[bool, typer.Option("--retry", help="repeat runs that failed or were killed")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="list the runs and do nothing")] = False,
) -> None:
    """Run a suite; a run that is already in the results file is not repeated."""
    import tempfile

    from tightmap.bench.formats import FORMATS, render
    from tightmap.bench.runner import pending
    from tightmap.bench.suites import built_in, from_file
    from tightmap.errors import OptionError

    if format not in FORMATS:
        raise OptionError(f"--format takes {', '.join(FORMATS)}, got {format!r}")
    for path in (out, report):
        if path is not None and not path.resolve().parent.is_dir():
            raise OptionError(f"{path}: the folder {path.resolve().parent} does not exist")
    names = [m.strip() for m in methods.split(",") if m.strip()] if methods else None
    if suite.endswith(".toml"):
        chosen = from_file(suite, family, names, time_limit, threads)
    else:
        chosen = built_in(suite, family, names, time_limit, seed, threads)
    for line in chosen.skipped:
        print(f"left out {line}", file=sys.stderr)
    if dry_run:
        for run in chosen.runs:
            print(f"{run.family}/{run.instance} {run.method} {run.time_limit:g} s")
        return
    with tempfile.TemporaryDirectory(prefix="tightmap-bench-") as folder:
        if out is None and suite == "smoke":
            path = Path(folder) / "results.jsonl"  # nobody wants to resume a smoke test
        else:
            path = out or Path(f"tightmap-bench-{chosen.name}.jsonl")
        todo = pending(chosen.runs, path, retry)
        if len(todo) < len(chosen.runs):
            print(f"{len(chosen.runs) - len(todo)} of {len(chosen.runs)} runs are already in {path}", file=sys.stderr)
        interrupted = _run(todo, path, jobs or (2 if suite == "smoke" else 1), memory_limit)
        rows = _rows_of(chosen, path)
    sys.stdout.write(render(rows, format))
    if report is not None:
        from tightmap.bench.report import write_report

        write_report(rows, report, chosen)
        print(f"report written to {report}", file=sys.stderr)
    if interrupted:
        print(f"interrupted; what is finished is in {path}, the same command goes on", file=sys.stderr)
        raise typer.Exit(130)


def _rows_of(suite: Suite, path: Path) -> list[Row]:
    """The latest rows of the runs of the suite, in its order."""
    from tightmap.bench.records import latest, read_rows

    found = latest(read_rows(path))
    return [found[run.key()] for run in suite.runs if run.key() in found]


def _run(todo: list[Any], path: Path, jobs: int, memory_limit: float | None) -> bool:
    """Run with a progress bar on standard error (plain lines where it is no terminal); True when interrupted."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from tightmap.bench.runner import execute

    if not todo:
        return False
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal, speed_estimate_period=1800) as progress:
        task = progress.add_task("benchmark", total=len(todo))

        def before(run: Any) -> None:
            progress.update(task, description=f"{run.family}/{run.instance} {run.method}")

        def after(run: Any, row: Row) -> None:
            progress.advance(task)
            line = f"{run.family}/{run.instance} {run.method}: {_sentence(row)}"
            progress.console.print(line, highlight=False, markup=False, soft_wrap=True)

        try:
            execute(todo, path, jobs=jobs, memory_limit=memory_limit, before=before, after=after)
        except KeyboardInterrupt:
            return True
    return False


def _sentence(row: Row) -> str:
    if row.get("reason"):
        return f"{row['status'].lower()}, {row['reason']}"
    energy, bound = row.get("energy"), row.get("lower_bound")
    text = f"energy {energy:.8g}" if energy is not None else "no feasible labelling"
    text += f", bound {bound:.8g}" if bound is not None else ""
    return f"{text}, {row['elapsed']:.2f} s, {row['status'].replace('_', ' ').lower()}"
