"""solve(): choose the method, run the one loop that all methods share, and report honestly.

The loop owns the clock, the iteration count, the incumbent, the callback, the trace and the status.  A candidate
becomes the incumbent when the canonical energy falls; the energy that is returned is evaluated once more on the user's
own tables.  A bound is only ever one that was certified from messages.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tightmap import clock, parallel
from tightmap.energy import energy, trivial_bound, unary_argmin
from tightmap.errors import ModelError, OptionError
from tightmap.graph import Graph
from tightmap.model import Model
from tightmap.registry import make_solver
from tightmap.result import Result, Status
from tightmap.solvers.base import Context, Init, Labels, Progress, Solver

OPTIMAL_GAP = 1e-9  # relative: energies are sums of rounded numbers, and bounds have an allowance subtracted


@dataclass(frozen=True)
class Info:
    """What a callback sees: iteration, elapsed, energy (best so far), lower_bound, labels (of the best so far)."""

    iteration: int
    elapsed: float
    energy: float
    lower_bound: float
    labels: Labels
    extra: dict[str, float] = field(default_factory=dict)


def solve(
    model: Model,
    method: str = "auto",
    time_limit: float | None = None,
    max_iterations: int | None = None,
    seed: int = 0,
    threads: int | None = None,
    init: Any = None,
    callback: Callable[[Info], Any] | None = None,
    trace: bool = False,
    **options: Any,
) -> Result:
    """Find a labelling of low energy, and where the method can, prove how good it is.

    Parameters
    ----------
    method : a name from ``tightmap.methods()``; "auto" chooses by the structure of the model.
    time_limit : seconds, not counting the compilation of kernels in a first run; the best labelling so far is returned.
    max_iterations : iterations of the method.
    seed : for everything random; the same input, options and seed give the same labels, whatever ``threads`` is.
    threads : cores to use, all by default.
    init : (n,) labels, or relaxed vectors ((n, S) or one vector per variable), or an earlier Result.
    callback : called after every step with an Info; returning True stops the run.
    trace : record iteration, elapsed, energy, lower_bound and the method's own figures.
    options : of the method (``tightmap.methods()`` lists them).
    """
    begin = clock.now()
    if not isinstance(model, Model):
        raise ModelError(f"solve: expected a tightmap.Model, got {type(model).__name__}")
    if time_limit is not None and not time_limit >= 0:
        raise OptionError(f"time_limit must be at least 0 seconds, got {time_limit}")
    if max_iterations is not None and max_iterations < 0:
        raise OptionError(f"max_iterations must be at least 0, got {max_iterations}")
    solver = make_solver(method, dict(options))
    available = parallel.available()
    if threads is not None and threads < 1:
        raise OptionError(f"threads must be at least 1, got {threads}")
    count = min(threads or available, available)
    deadline = None if time_limit is None else begin + time_limit
    context = Context(int(seed), count, deadline, max_iterations)
    graph = model.graph()
    run = _Run(model, graph, method, solver, context, callback, trace, begin)
    return run.execute(initial_point(model, graph, init))


def initial_point(model: Model, graph: Graph, init: Any) -> Init:
    if init is None:
        return Init()
    if isinstance(init, Result):
        if len(init.labels) != model.num_variables:
            raise ModelError(
                f"init: the result has {len(init.labels)} labels, the model {model.num_variables} variables"
            )
        return Init(labels=graph.restrict(model._labels(init.labels)), state=init.state)
    if isinstance(init, np.ndarray) and init.dtype != object:
        array = init
        if array.ndim == 1 or (array.shape == model.grid_shape and np.issubdtype(array.dtype, np.integer)):
            return Init(labels=graph.restrict(model._labels(array)))
        rows = list(array.reshape(-1, array.shape[-1]))
    else:
        rows = list(init)
        if all(isinstance(v, int | np.integer) for v in rows):
            return Init(labels=graph.restrict(model._labels(np.array(rows, dtype=np.int64))))
    if len(rows) != model.num_variables:
        raise ModelError(f"init: expected {model.num_variables} labels or vectors, got {len(rows)}")
    vectors = []
    for i in graph.variables:
        v = np.asarray(rows[i], dtype=np.float64)
        card = int(model.cardinalities[i])
        if v.shape != (card,) or not np.isfinite(v).all() or (v < 0).any() or abs(v.sum() - 1.0) > 1e-6:
            raise ModelError(f"init: variable {i} needs {card} non-negative numbers that sum to 1, got {v.tolist()}")
        vectors.append(v)
    return Init(relaxed=np.concatenate(vectors) if vectors else np.zeros(0))


@contextmanager
def _interrupt_flag() -> Iterator[threading.Event]:
    """While solving, Ctrl-C sets a flag instead of tearing a step apart; a second one raises as usual."""
    flag = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return

    def handler(signum: int, frame: Any) -> None:
        if flag.is_set():
            raise KeyboardInterrupt
        flag.set()

    before = signal.signal(signal.SIGINT, handler)
    try:
        yield flag
    finally:
        signal.signal(signal.SIGINT, before if before is not None else signal.SIG_DFL)


class _Run:
    """One call of solve()."""

    def __init__(
        self,
        model: Model,
        graph: Graph,
        method: str,
        solver: Solver,
        context: Context,
        callback: Callable[[Info], Any] | None,
        trace: bool,
        begin: float,
    ) -> None:
        self.model, self.graph, self.method, self.solver, self.context = model, graph, method, solver, context
        self.callback, self.tracing, self.begin = callback, trace, begin
        self.iterations = 0
        self.best: npt.NDArray[np.integer] = np.zeros(graph.n, dtype=graph.label_type)
        self.best_energy = float("inf")  # canonical: a forbidden entry costs graph.hard
        self.bound = -float("inf")
        self.trace: list[dict[str, float]] = []
        self.note = ""

    def execute(self, init: Init) -> Result:
        graph, solver, context = self.graph, self.solver, self.context
        self._offer(init.labels if init.labels is not None else unary_argmin(graph))
        if graph.m == 0:
            # unaries alone: their minimum is the optimum (or the proof that there is no feasible labelling)
            self.best, self.best_energy = unary_argmin(graph), energy(graph, unary_argmin(graph))
            self._bound(trivial_bound(graph))
            return self._result(Status.CONVERGED, None)
        solver.check(graph)
        status: Status | None = None
        state: Any = None
        with parallel.using(context.threads):  # noqa: SIM117
            with _interrupt_flag() as interrupted:
                status = self._limit(interrupted)
                if status is None:
                    state = solver.start(graph, init, context)
                    status = self._limit(interrupted)
                while status is None:
                    progress = solver.step(state)
                    stop = self._absorb(progress)
                    if self._proven():
                        status = Status.OPTIMAL
                    elif progress.done:
                        status = Status.CONVERGED
                    elif stop:
                        status = Status.INTERRUPTED
                    else:
                        status = self._limit(interrupted)
                if state is not None:
                    final = solver.finish(state)
                    self._offer(final.labels)
                    self._bound(final.bound)
                    self.note, state = final.note, final.state
        return self._result(status, state)

    def _limit(self, interrupted: threading.Event) -> Status | None:
        if interrupted.is_set():
            return Status.INTERRUPTED
        if self.context.remaining() <= 0:
            return Status.TIME_LIMIT
        limit = self.context.max_iterations
        if limit is not None and self.iterations >= limit:
            return Status.ITERATION_LIMIT
        return None

    def _offer(self, labels: Labels | None, known: float | None = None) -> None:
        if labels is None:
            return
        value = energy(self.graph, labels) if known is None else known
        if value < self.best_energy:
            self.best, self.best_energy = labels.astype(self.graph.label_type), value

    def _bound(self, bound: float | None) -> None:
        if bound is not None and bound > self.bound:
            self.bound = bound

    def _proven(self) -> bool:
        return self.bound >= self.best_energy - OPTIMAL_GAP * max(1.0, abs(self.best_energy))

    def _visible_energy(self) -> float:
        """The incumbent's energy for people: +inf while it violates a hard constraint."""
        if self.graph.hard > 0.0 and not np.isfinite(self.model.energy(self.graph.lift(self.best))):
            return float("inf")
        return self.best_energy

    def _absorb(self, progress: Progress) -> bool:
        """Take in one step; True when the callback asks to stop."""
        self.iterations += progress.iterations
        self._offer(progress.labels, progress.energy)
        self._bound(progress.bound)
        if not self.tracing and self.callback is None:
            return False
        elapsed = clock.now() - self.begin
        value, bound = self._visible_energy(), min(self.bound, self.best_energy)
        if self.tracing:
            row = {"iteration": self.iterations, "elapsed": elapsed, "energy": value, "lower_bound": bound}
            self.trace.append(row | progress.info)
        if self.callback is None:
            return False
        info = Info(self.iterations, elapsed, value, bound, self.graph.lift(self.best), progress.info)
        return self.callback(info) is True

    def _result(self, status: Status, state: Any) -> Result:
        graph = self.graph
        labels = graph.lift(self.best)
        value = self.model.energy(labels)
        feasible = bool(np.isfinite(value))
        if not feasible:
            proof = self.bound
            if proof <= graph.hard_threshold and len(graph.arrays.scope) < 10_000_000:
                proof = max(proof, trivial_bound(graph))  # enough to prove a contradiction within one table
            if proof > graph.hard_threshold + 1e-9 * max(1.0, abs(graph.hard_threshold)):
                status = Status.INFEASIBLE
            elif status is Status.OPTIMAL:
                status = Status.CONVERGED
        elif self._proven():
            status = Status.OPTIMAL
        bound = float("inf") if status is Status.INFEASIBLE else min(self.bound, value)
        return Result(
            labels=labels,
            energy=value,
            lower_bound=bound,
            feasible=feasible,
            status=status,
            iterations=self.iterations,
            elapsed=clock.now() - self.begin,
            method=self.method,
            options=asdict(self.solver),
            trace=self.trace,
            state=state,
            note=self.note,
        )
