"""``tightmap batch``: all models of a folder, one line of JSON each.

The file of results is only ever appended to, and a model that is in it already is not solved again: the same command
goes on after an interruption of any kind.
"""

from __future__ import annotations

import fnmatch
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tightmap.bench.records import Row
    from tightmap.cli.outputs import Session
    from tightmap.many.tasks import Outcome

AMBIGUOUS = (".txt", ".json")  # models may be named so, but so is nearly everything else


def batch(
    context: typer.Context,
    paths: Annotated[list[str], typer.Argument(metavar="DIR|MODEL...", help="folders of models, or models")],
    out: Annotated[str, typer.Option(metavar="FILE.jsonl", help="results, one JSON object per line; appended to")],
    pattern: Annotated[
        str | None, typer.Option(metavar="GLOB", help="only such names in folders; all models but .txt and .json")
    ] = None,
    method: Annotated[str, typer.Option(help="see `tightmap methods`")] = "auto",
    option: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="option of the method")] = None,
    time_limit: Annotated[float | None, typer.Option(metavar="S", help="seconds per model")] = None,
    wall_limit: Annotated[
        float | None, typer.Option(metavar="S", help="seconds per model, compilation included")
    ] = None,
    max_iterations: Annotated[int | None, typer.Option(metavar="N", help="per model")] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="of every model")] = 0,
    workers: Annotated[int | None, typer.Option(metavar="N", help="models at a time; all cores by default")] = None,
    threads: Annotated[int | None, typer.Option(metavar="N", help="per model")] = None,
    engine: Annotated[str, typer.Option(help="processes, serial or ray")] = "processes",
    labels: Annotated[bool, typer.Option(help="write the labels of every model")] = True,
    retry: Annotated[bool, typer.Option("--retry", help="try models again that failed before")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="no progress")] = False,
) -> None:
    """Solve all models of a folder on all cores; what is in the results already is not solved again."""
    from tightmap.bench.records import append_row, check_results_file, latest, read_rows
    from tightmap.cli.commands import check_seed, parse_options
    from tightmap.cli.outputs import named
    from tightmap.cli.solve_outputs import outcome as described
    from tightmap.driver import whole
    from tightmap.errors import OptionError
    from tightmap.many.job import ENGINES, Job, open_engine, outcomes
    from tightmap.many.tasks import fingerprint
    from tightmap.registry import make_solver

    session: Session = context.obj
    check_seed(seed)
    if engine not in ENGINES:
        raise OptionError(f"--engine takes {', '.join(ENGINES)}, got {engine!r}")
    whole("--workers", workers, 1)
    whole("--threads", threads, 1)
    limits = {"time_limit": time_limit, "wall_limit": wall_limit, "max_iterations": max_iterations}
    own = parse_options(option or [])
    make_solver(method, dict(own))  # only options of the method
    job = Job(method, {k: v for k, v in limits.items() if v is not None} | own)
    session.check({"--out": out})
    with named("--out"):
        check_results_file(out)
    models = list(_models(paths, pattern))
    done = latest(read_rows(out))
    keys = [fingerprint(job.task(i, path, seed, None)) for i, path in enumerate(models)]
    todo = [i for i, key in enumerate(keys) if key not in done or (retry and "error" in done[key])]
    if len(todo) < len(models) and not quiet:
        session.remark(f"{len(models) - len(todo)} of {len(models)} models are already in {out}")
    found = outcomes(
        ((i, models[i], seed) for i in todo), job, partial(open_engine, engine, workers, threads, len(todo))
    )
    session.guard.farewell = "interrupted; the same command goes on"
    watched = _watched(found, len(todo), not quiet and sys.stderr.isatty())
    with session.guard.patient(), closing(found), closing(watched):  # a signal ends the workers
        for outcome in watched:
            path = models[outcome.index]
            row: Row = {"key": keys[outcome.index], "path": path}
            if outcome.result is not None:
                row |= described(outcome.result, seed, threads)
                if not labels:
                    del row["labels"]
            else:
                row["error"] = " ".join(str(outcome.error).split()) or type(outcome.error).__name__
                if not quiet:
                    session.complain(row["error"] if path in row["error"] else f"{path}: {row['error']}")
            append_row(out, row)
            done[row["key"]] = row
    _summarise(session, [done[key] for key in keys if key in done], len(models), out)


def _models(paths: list[str], pattern: str | None) -> Iterator[str]:
    """Files as they are named, folders in the order of names; nothing twice."""
    from tightmap.errors import ModelError
    from tightmap.io import FORMATS
    from tightmap.io.source import Source

    seen: set[str] = set()
    for path in paths:
        if not os.path.isdir(path):
            if not os.path.exists(path):
                raise ModelError(f"{path}: no such file or folder")
            listed = [path]
        else:
            listed = []
            for entry in sorted(Path(path).iterdir()):
                suffix = Source(entry).suffix
                usual = suffix in FORMATS and suffix not in AMBIGUOUS
                if entry.is_file() and (usual if pattern is None else fnmatch.fnmatch(entry.name, pattern)):
                    listed.append(str(entry))
            if not listed:
                what = "models" if pattern is None else f"files that fit {pattern!r}"
                raise ModelError(f"{path}: there are no {what} in this folder")
        for name in listed:
            if os.path.realpath(name) not in seen:
                seen.add(os.path.realpath(name))
                yield name


def _watched(found: Generator[Outcome], total: int, bar: bool) -> Generator[Outcome]:
    from tightmap.many.solve_many import shown

    return shown(found, total) if bar and total else found


def _summarise(session: Session, rows: list[Row], asked: int, out: str) -> None:
    failed = sum("error" in row for row in rows)
    optimal = sum(row.get("status") == "OPTIMAL" for row in rows)
    if session.guard.first is not None:
        session.remark(f"interrupted; {len(rows)} of {asked} models are in {out}, the same command goes on")
        return
    session.say(f"{len(rows) - failed} models solved, {optimal} of them proven optimal; results in {out}\n")
    if failed:
        session.failed = True
        session.complain(f"{failed} of {asked} models could not be solved; {out} says why")
