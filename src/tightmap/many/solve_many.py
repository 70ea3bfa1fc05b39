"""solve_many(): a sequence of models on all cores, results as they come."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Sized
from functools import partial
from typing import Any

from tightmap.driver import whole
from tightmap.errors import ModelError, OptionError
from tightmap.many.job import ENGINES, Job, open_engine, outcomes
from tightmap.many.tasks import Outcome
from tightmap.model.model import Model
from tightmap.solvers.base import Solver


def solve_many(
    models: Iterable[Any],
    *,
    workers: int | None = None,
    engine: str = "processes",
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = False,
    method: str | Solver = "auto",
    seed: int = 0,
    threads: int | None = None,
    **options: Any,
) -> Generator[Outcome]:
    """Solve many models; yields an Outcome (index, result, error) for each, as soon as it is known.

    Parameters
    ----------
    models : Models, paths of models, or functions without arguments that make one; a generator is read as needed.
        A function that another process can import is called by a worker, any other one here.  A model that cannot be
        made or solved yields its error, and the rest goes on.
    workers : processes; by default as many as there are cores, divided by ``threads``.
    engine : "processes" on this machine, "serial" in this process, or "ray" (pip install 'tightmap[ray]').
    checkpoint : a folder that remembers results.  A run that was interrupted or killed goes on from there: what is
        known is yielded again, and not solved again.
    progress : show a bar on standard error.
    method, seed, threads, and all other options : of ``solve``, for every model; number i gets the seed ``seed + i``.
        ``threads`` is what one worker may use; by default the cores are shared out evenly.  States are not sent back
        unless ``keep_state=True``, and there is no callback.

    Closing the iterator, or an exception such as Ctrl-C, ends all workers.
    """
    if isinstance(models, Model | str | bytes | os.PathLike) or not isinstance(models, Iterable):
        raise ModelError(f"solve_many: expected a sequence of models, got {type(models).__name__} (solve takes one)")
    if engine not in ENGINES:
        raise OptionError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    first = whole("seed", seed, 0)
    if first is None:
        raise OptionError("seed must be a whole number, got None")
    if checkpoint is not None and options.get("keep_state"):
        raise OptionError("checkpoint: a folder of results keeps no states, so keep_state=True cannot be had from it")
    job = Job(method, options)
    count, each = whole("workers", workers, 1), whole("threads", threads, 1)
    total = len(models) if isinstance(models, Sized) else None
    if engine == "ray":
        from tightmap.many.ray_engine import load_ray

        load_ray()  # where it is missing, say so now
    found = outcomes(
        ((i, model, first + i) for i, model in enumerate(models)),
        job,
        partial(open_engine, engine, count, each, total),
        checkpoint,
    )
    return shown(found, total) if progress else found


def shown(found: Iterable[Outcome], total: int | None) -> Generator[Outcome]:
    """The same with a bar on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task, failed = bar.add_task("models", total=total), 0
        for outcome in found:
            failed += outcome.result is None
            bar.update(task, advance=1, description=f"models ({failed} failed)" if failed else "models")
            yield outcome
