"""``tightmap bench``: run a suite, show its tables, write its report.

``bench`` is mounted as a command of ``tightmap``.  Everything heavy is imported inside of it.  Progress goes to
standard error, tables to standard output.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tightmap.bench.records import Row
    from tightmap.bench.suites import Suite
    from tightmap.cli.outputs import Session


def bench(
    context: typer.Context,
    suite: Annotated[str, typer.Argument(metavar="SUITE", help="smoke, paper, peers, or a suite of your own (.toml)")],
    family: Annotated[list[str] | None, typer.Option(help="only e.g. inpainting, or stereo/venus (repeatable)")] = None,
    methods: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="methods; those of the suite by default")
    ] = None,
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
    page: Annotated[
        Path | None, typer.Option(metavar="FILE.md", help="of the suite paper: its claims and tables, in Markdown")
    ] = None,
    format: Annotated[str, typer.Option(help="terminal, markdown, csv or latex")] = "terminal",
    retry: Annotated[bool, typer.Option("--retry", help="repeat runs that failed or were killed")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="list the runs and do nothing")] = False,
) -> None:
    """Run a suite; a run that is already in the results file is not repeated."""
    from tightmap.bench.formats import FORMATS, render
    from tightmap.bench.records import check_results_file
    from tightmap.bench.runner import pending
    from tightmap.bench.suites import built_in, from_file
    from tightmap.cli.outputs import named
    from tightmap.errors import OptionError

    session: Session = context.obj
    if format not in FORMATS:
        raise OptionError(f"--format takes {', '.join(FORMATS)}, got {format!r}")
    if page is not None and suite != "paper":
        raise OptionError(f"--page is for the suite paper, not for {suite!r}; --report writes a page of any suite")
    if seed < 0:
        raise OptionError(f"--seed must be at least 0, got {seed}")
    names = [m.strip() for m in methods.split(",") if m.strip()] if methods else None
    if suite.endswith(".toml"):
        chosen = from_file(suite, family, names, time_limit, threads)
    else:
        chosen = built_in(suite, family, names, time_limit, seed, threads)
    for line in chosen.skipped:
        session.remark(f"left out {line}")
    if dry_run:
        for run in chosen.runs:
            session.say(f"{run.family}/{run.instance} {run.method} {run.time_limit:g} s\n")
        return
    path = out
    if out is None and suite != "smoke":  # nobody wants to resume a smoke test
        path = Path(f"tightmap-bench-{chosen.name}.jsonl")
    files = {"--out": path, "--report": report, "--page": page}
    session.check(
        {option: None if f is None else str(f) for option, f in files.items()},
        {"SUITE": suite if suite.endswith(".toml") else None},
    )
    if path is not None:
        with named("--out"):
            check_results_file(path)
    todo = chosen.runs if path is None else pending(chosen.runs, path, retry)
    if len(todo) < len(chosen.runs):
        session.remark(f"{len(chosen.runs) - len(todo)} of {len(chosen.runs)} runs are already in {path}")
    finished: list[Row] = []
    with session.guard.patient():  # a signal ends the runs; what they found is shown
        _run(session, todo, path, jobs or (2 if suite == "smoke" else 1), memory_limit, finished)
        rows = _rows_of(chosen, path, finished)
    session.say(render(rows, format))
    if report is not None:
        from tightmap.bench.report import write_report

        if session.attempt("--report", str(report), lambda: write_report(rows, report, chosen)):
            session.remark(f"report written to {report}")
    if page is not None:
        from tightmap.bench.claims import write_paper_page

        if session.attempt("--page", str(page), lambda: write_paper_page(rows, page)):
            session.remark(f"page written to {page}")
    if session.guard.first is not None:
        session.remark(session.guard.farewell)


def _what_is_there(finished: int, asked: int, path: Path | None) -> str:
    if finished == 0:
        return "interrupted; no run was finished" + ("" if path is None else ", the same command goes on")
    if path is None:
        return f"interrupted; {finished} of {asked} runs were finished, no file keeps them (--out FILE would)"
    return f"interrupted; {finished} of {asked} runs were finished and are in {path}, the same command goes on"


def _rows_of(suite: Suite, path: Path | None, finished: list[Row]) -> list[Row]:
    """The latest rows of the runs of the suite, in its order."""
    from tightmap.bench.records import latest, read_rows

    found = latest([] if path is None else read_rows(path)) | latest(finished)
    return [found[run.key()] for run in suite.runs if run.key() in found]


def _run(
    session: Session,
    todo: list[Any],
    path: Path | None,
    jobs: int,
    memory_limit: float | None,
    finished: list[Row],
) -> None:
    """Run with a progress bar on standard error (plain lines where it is no terminal).

    What is finished is added to ``finished``, whatever ends the rest.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from tightmap.bench.runner import execute
    from tightmap.errors import ModelError

    if not todo:
        return
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),  # names of models may have brackets
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    guard = session.guard
    guard.farewell = _what_is_there(0, len(todo), path)
    with Progress(*columns, console=console, disable=not console.is_terminal, speed_estimate_period=1800) as progress:
        task = progress.add_task("benchmark", total=len(todo))

        def before(run: Any) -> None:
            progress.update(task, description=f"{run.family}/{run.instance} {run.method}")

        def after(run: Any, row: Row) -> None:
            guard.farewell = _what_is_there(len(finished), len(todo), path)
            progress.advance(task)
            line = f"{run.family}/{run.instance} {run.method}: {_sentence(row)}"
            progress.console.print(line, highlight=False, markup=False, soft_wrap=True)

        try:
            execute(
                todo,
                path,
                jobs=jobs,
                memory_limit=memory_limit,
                before=before,
                after=after,
                rows=finished,
                interrupted=guard.flag,
            )
            guard.farewell = _what_is_there(len(finished), len(todo), path)
        except ModelError as error:  # the disk is full: show what was measured so far
            session.complain(f"--out {error}")
            session.failed = True
            guard.farewell = "interrupted"


def _sentence(row: Row) -> str:
    if row.get("reason"):
        return f"{row['status'].lower()}, {row['reason']}"
    energy, bound = row.get("energy"), row.get("lower_bound")
    text = f"energy {energy:.8g}" if energy is not None else "no feasible labelling"
    text += f", bound {bound:.8g}" if bound is not None else ""
    return f"{text}, {row['elapsed']:.2f} s, {row['status'].replace('_', ' ').lower()}"
