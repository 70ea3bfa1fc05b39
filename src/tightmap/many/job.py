"""What is to be done with every model of a sequence, where, and the loop that does it.

What is found depends on the models, the options and the seeds alone, never on which worker was free.  Models are drawn
as workers become free, so a sequence may be endless.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from typing import Any, Protocol

from tightmap.driver import seconds, whole
from tightmap.errors import OptionError
from tightmap.many.checkpoint import Checkpoint
from tightmap.many.processes import ProcessEngine, Record, SerialEngine
from tightmap.many.tasks import Outcome, Task, fingerprint, prepare_item
from tightmap.registry import canonical_name, make_solver, place_of
from tightmap.runtime import parallel
from tightmap.runtime.interruption import shared_flag
from tightmap.solvers.base import Solver

POLL = 0.1  # seconds between looks at what happens elsewhere
ENGINES = ("processes", "serial", "ray")
COMMON = ("time_limit", "wall_limit", "max_iterations", "init", "trace", "keep_state")

Numbered = tuple[int, Any, int]  # index, model, seed


class Job:
    """A method with its options, checked before anything is started."""

    def __init__(self, method: str | Solver, options: dict[str, Any]) -> None:
        if "callback" in options:
            raise OptionError("callback: a run in another process cannot call back; results come as they are found")
        if not isinstance(method, str | Solver):
            raise OptionError(f"method must be a name or an instance of a solver, got {type(method).__name__}")
        solver = make_solver(method, {k: v for k, v in options.items() if k not in COMMON})
        self.name = canonical_name(method) if isinstance(method, str) else solver.name
        self.method = place_of(self.name) if isinstance(method, str) else method
        for limit in ("time_limit", "wall_limit"):
            seconds(limit, options.get(limit))
        whole("max_iterations", options.get("max_iterations"), 0)
        self.options = {"keep_state": False} | options

    def task(self, index: int, item: Any, seed: int, threads: int | None) -> Task:
        """Raises whatever is wrong with the model."""
        return Task(
            index, prepare_item(item), self.method, self.name, self.options | {"seed": seed, "threads": threads}
        )


class Engine(Protocol):
    """Where tasks are carried out; at most ``window`` of them are waiting or under way."""

    window: int
    threads: int | None  # of every run

    def submit(self, task: Task) -> None: ...

    def next(self, timeout: float) -> Outcome | None: ...

    def close(self) -> None: ...


def open_engine(
    name: str, workers: int | None, threads: int | None, total: int | None, record: Record | None
) -> Engine:
    """Workers times threads are the cores, unless the user wants both otherwise."""
    if name == "serial":
        return SerialEngine(threads, record)
    if name == "ray":
        from tightmap.many.ray_engine import RayEngine

        return RayEngine(workers, threads or 1, record)
    cores = parallel.available()
    if workers is None:
        workers = max(1, cores // (threads or 1))
        workers = workers if total is None else max(1, min(workers, total))
    return ProcessEngine(workers, threads or max(1, cores // workers), record)


def outcomes(
    items: Iterable[Numbered], job: Job, make_engine: Callable[[Record | None], Engine], checkpoint: Any = None
) -> Generator[Outcome]:
    """What becomes of the models, as it becomes known; everything is closed in the end, whatever ends it.

    A command that was told to end gets no more of them.
    """
    known = None if checkpoint is None else Checkpoint(checkpoint)
    engine: Engine | None = None
    flag = shared_flag()
    try:
        engine = make_engine(None if known is None else known.record)
        source, open_, running = iter(items), True, 0
        trouble: Exception | None = None  # of whoever makes the models, told after those that were made
        while flag is None or not flag.is_set():
            outcome: Outcome | None = None
            if open_ and running < engine.window:
                try:
                    drawn = next(source, None)
                except Exception as error:
                    trouble, drawn = error, None
                if drawn is None:
                    open_ = False
                    continue
                outcome = _begin(drawn, job, engine, known)
                running += outcome is None
            elif running:
                outcome = engine.next(POLL)
                running -= outcome is not None
            elif trouble is not None:
                raise trouble
            else:
                return
            if outcome is not None:
                yield outcome
    except KeyboardInterrupt:
        if flag is None or not flag.is_set():
            raise
    finally:
        if engine is not None:
            engine.close()
        if known is not None:
            known.close()


def _begin(drawn: Numbered, job: Job, engine: Engine, known: Checkpoint | None) -> Outcome | None:
    """Hand a model to the engine; an outcome where it is known already, or where the model is none."""
    index, item, seed = drawn
    try:
        task = job.task(index, item, seed, engine.threads)
        if known is not None:
            task = replace(task, key=fingerprint(task))
            found = known.find(task.key)
            if found is not None:
                return Outcome(index, found)
        engine.submit(task)
    except Exception as error:
        return Outcome(index, None, error)
    return None
