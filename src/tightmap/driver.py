"""solve(): choose the method, run the one loop that all methods share, and report honestly.

The loop owns the clock, the iteration count, the incumbent, the callback, the trace and the status.  A candidate
becomes the incumbent when the canonical energy falls; the energy that is returned is evaluated once more on the user's
own tables.  A bound is only ever one that was certified from messages.
"""

from __future__ import annotations

import logging
import math
import operator
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from typing import Any

import numpy as np

from tightmap.energy.certificate import proves_infeasible
from tightmap.energy.energies import trivial_bound, unary_argmin
from tightmap.errors import ModelError, OptionError
from tightmap.graph.graph import Graph
from tightmap.model.checks import as_array
from tightmap.model.model import Model
from tightmap.moves.context import Context, Incumbent, Labels
from tightmap.moves.polish import first_descent
from tightmap.registry import canonical_name, make_solver
from tightmap.result import Result, Status
from tightmap.runtime import clock, memory, parallel
from tightmap.runtime.interruption import interrupt_flag
from tightmap.solvers.base import Init, Progress, Solver

logger = logging.getLogger("tightmap")

FIRST_PART = 0.05  # of a time limit, that the first descent may take
FIRST_MOMENT = 0.25  # seconds that the first descent may take beyond any limit but zero


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
    method: str | Solver = "auto",
    time_limit: float | None = None,
    max_iterations: int | None = None,
    seed: int = 0,
    threads: int | None = None,
    init: Any = None,
    callback: Callable[[Info], Any] | None = None,
    trace: bool = False,
    *,
    wall_limit: float | None = None,
    keep_state: bool = True,
    **options: Any,
) -> Result:
    """Find a labelling of low energy, and where the method can, prove how good it is.

    Parameters
    ----------
    method : a name from ``tightmap.methods()``, or an instance of a solver with its options set; "auto" chooses by the
        structure of the model.
    time_limit : seconds, not counting the compilation of kernels in a first run; the best labelling so far is returned.
    max_iterations : iterations of the method.
    seed : for everything random; the same input, options and seed give the same labels, whatever ``threads`` is, unless
        a time limit makes them depend on the clock.
    threads : cores to use, all by default.
    init : (n,) labels, or relaxed vectors ((n, S) or one vector per variable), or an earlier Result.
    callback : called after every step with an Info; returning True stops the run.
    trace : record iteration, elapsed, energy, lower_bound and the method's own figures.
    wall_limit : seconds for everything, the compilation of kernels included, which is broken off then.
    keep_state : False returns a Result without the method's state, which may be larger than the model.
    options : of the method (``tightmap.methods()`` lists them).
    """
    begin, wall_begin, reading = clock.now(), time.perf_counter(), clock.Reading()
    if not isinstance(model, Model):
        raise ModelError(f"solve: expected a tightmap.Model, got {type(model).__name__}")
    limit = seconds("time_limit", time_limit)
    total = seconds("wall_limit", wall_limit)
    iterations = whole("max_iterations", max_iterations, 0)
    chosen = whole("threads", threads, 1)
    start = whole("seed", seed, 0)
    if start is None:
        raise OptionError("seed must be a whole number, got None")
    if callback is not None and not callable(callback):
        raise OptionError(f"callback must be a function of one argument, got {type(callback).__name__}")
    if not isinstance(method, str | Solver):
        raise OptionError(f"method must be a name or an instance of a solver, got {type(method).__name__}")
    if isinstance(init, Iterator):
        init = list(init)  # it may be looked at twice
    if total is not None:
        limit = total if limit is None else min(limit, total)
    wall = math.inf if total is None else wall_begin + total
    with clock.stopped():  # modules are imported, once per process
        solver = make_solver(method, dict(options))
    name = canonical_name(method) if isinstance(method, str) else solver.name
    available = parallel.available()
    count = min(chosen or available, available)
    with clock.wall(wall):
        run: _Run | None = None
        try:
            with memory.guarded("the canonical form"):
                graph = model.graph()
            point = initial_point(model, graph, init)
            deadline = None if limit is None else begin + limit
            context = Context(start, count, deadline, iterations, Incumbent(graph), wall=wall, reading=reading)
            run = _Run(model, graph, name, solver, context, callback, bool(trace), begin, at_once=limit == 0.0)
            with memory.guarded(f"method {name!r}"):
                result = run.execute(point)
        except clock.WallTimeUp:
            result = _cut_off(model, init, name, solver, run, clock.now() - begin)
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("%r, %s", model, result.summary().replace("\n", ";"))
    return result if keep_state else replace(result, state=None)


def _cut_off(model: Model, init: Any, name: str, solver: Solver, run: _Run | None, elapsed: float) -> Result:
    """The limit on everything has passed while a kernel was being compiled: what there is, without one kernel more."""
    result = Result(
        labels=_start_without_kernels(model, init),
        energy=math.inf,
        lower_bound=-math.inf,
        feasible=False,
        status=Status.TIME_LIMIT,
        iterations=0,
        elapsed=elapsed,
        method=name,
        options=_options(solver),
        note="kernels were being compiled when the time was up",
    )
    if run is not None:
        bound = run.graph.user_bound(run.incumbent.bound)
        result = replace(result, lower_bound=bound, iterations=run.iterations, trace=run.trace)
        if run.incumbent.energy < math.inf:
            result = replace(result, labels=run.graph.lift(run.incumbent.labels))
    value = model.energy(result.labels)
    feasible = bool(np.isfinite(value))
    return replace(result, energy=value, feasible=feasible, lower_bound=min(result.lower_bound, value))


def _start_without_kernels(model: Model, init: Any) -> Labels:
    """Where a run would begin, when the limit on everything leaves no time to get a single kernel ready."""
    given = None if init is None else _labels_or_vectors(model, init)[0]
    if given is not None:
        return given.copy()
    unaries, first = model.unaries, model.offset[:-1]
    if not len(first):
        return np.zeros(0, dtype=np.int64)
    cheapest = unaries == np.repeat(np.minimum.reduceat(unaries, first), model.cardinalities)
    label = np.arange(len(unaries)) - np.repeat(first, model.cardinalities)
    best = np.minimum.reduceat(np.where(cheapest, label, model.max_labels), first)
    return np.where(model.clamped >= 0, model.clamped, best)


def _options(solver: Solver) -> dict[str, Any]:
    """The options of a solver, none of which anybody else can change."""
    plain = {name: getattr(solver, name) for name in _option_names(type(solver))}
    if all(value is None or isinstance(value, int | float | str) for value in plain.values()):
        return plain
    return asdict(solver)


@cache
def _option_names(solver: type[Solver]) -> tuple[str, ...]:
    return tuple(option.name for option in fields(solver))


def whole(name: str, value: Any, least: int) -> int | None:
    """A whole number of at least ``least``, or None."""
    if value is None:
        return None
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool | np.bool_) or number < least:
        raise OptionError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return number


def seconds(name: str, value: Any) -> float | None:
    """Seconds of at least 0, or None; infinitely many are none."""
    if value is None:
        return None
    wrong = isinstance(value, bool | np.bool_ | str | bytes) or np.ndim(value) > 0
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        wrong = True
    if wrong or not number >= 0.0:
        raise OptionError(f"{name} must be a number of seconds of at least 0, got {value!r}")
    return None if np.isinf(number) else number


def left_of(wall_limit: float | None, begin: float) -> float | None:
    """What is left of a limit on everything that began at that moment of time.perf_counter()."""
    limit = seconds("wall_limit", wall_limit)
    return None if limit is None else max(0.0, limit - (time.perf_counter() - begin))


def initial_point(model: Model, graph: Graph, init: Any) -> Init:
    if init is None:
        return Init()
    labels, rows = _labels_or_vectors(model, init)
    if labels is not None:
        return Init(labels=graph.restrict(labels), state=init.state if isinstance(init, Result) else None)
    if len(rows) != model.num_variables:
        raise ModelError(f"init: expected {model.num_variables} labels or vectors, got {len(rows)}")
    vectors = []
    for i in graph.variables:
        card = int(model.cardinalities[i])
        try:
            if np.iscomplexobj(rows[i]):
                raise TypeError("a complex number is no probability")
            v = np.asarray(rows[i], dtype=np.float64)
            right = v.shape == (card,) and np.isfinite(v).all() and (v >= 0).all() and abs(v.sum() - 1.0) <= 1e-6
        except (TypeError, ValueError, OverflowError):
            right = False
        if not right:
            raise ModelError(f"init: variable {i} needs {card} non-negative numbers that sum to 1, got {rows[i]!r}")
        vectors.append(v)
    return Init(relaxed=np.concatenate(vectors) if vectors else np.zeros(0))


def _labels_or_vectors(model: Model, init: Any) -> tuple[Labels | None, list[Any]]:
    """What a run is to begin with: labels of all variables, else one relaxed vector for each, not checked yet."""
    if isinstance(init, Result):
        if len(init.labels) != model.num_variables:
            raise ModelError(
                f"init: the result has {len(init.labels)} labels, the model {model.num_variables} variables"
            )
        return model._labels(init.labels), []
    array = as_array(init, "init") if hasattr(init, "__array__") else None  # arrays of other libraries too
    if array is not None and array.ndim == 0:
        raise ModelError(f"init: expected {model.num_variables} labels or vectors, got one number")
    if array is None and (isinstance(init, str | bytes | Mapping) or not isinstance(init, Iterable)):
        raise ModelError(
            f"init: expected labels, relaxed vectors or a Result, got {type(init).__name__} (read_labels reads files)"
        )
    if array is not None and array.dtype != object:
        if array.ndim == 1 or (array.shape == model.shape and np.issubdtype(array.dtype, np.integer)):
            return model._labels(array), []
        return None, list(array.reshape(-1, array.shape[-1])) if array.size else []
    rows = list(init if array is None else array)
    if all(isinstance(v, int | np.integer) for v in rows):
        return model._labels([int(v) for v in rows]), []  # numbers beyond 64 bits are refused there
    return None, rows


def _start(graph: Graph, init: Init) -> Labels:
    """The labels where a run begins."""
    return init.labels if init.labels is not None else unary_argmin(graph)


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
        at_once: bool,
    ) -> None:
        assert context.incumbent is not None
        self.model, self.method, self.solver, self.context = model, method, solver, context
        self.graph, self.incumbent = graph, context.incumbent
        self.callback, self.tracing, self.begin = callback, trace, begin
        self.at_once = at_once  # a limit of zero: nothing but the start is evaluated
        self.iterations = 0
        self.trace: list[dict[str, float]] = []
        self.note = ""

    def execute(self, init: Init) -> Result:
        graph, solver, context, incumbent = self.graph, self.solver, self.context, self.incumbent
        if graph.m == 0:
            # unaries alone: their minimum is the optimum (or the proof that there is no feasible labelling)
            incumbent.offer(init.labels)
            incumbent.offer(unary_argmin(graph))
            incumbent.raise_bound(trivial_bound(graph))
            nothing_else = Status.TIME_LIMIT if self.at_once else Status.CONVERGED  # unless that is the proof
            return self._result(nothing_else if graph.n else Status.OPTIMAL, None)
        solver.check(graph)
        status: Status | None = None
        state: Any = None
        with parallel.using(context.threads), interrupt_flag() as interrupted:
            # kernels may still be compiled when a limit on everything ends the run: then there is a good answer before
            prompt = context.wall == math.inf and solver.optimal_at_once(graph, context)
            if self.at_once:
                incumbent.offer(_start(graph, init))
            elif prompt:
                incumbent.offer(init.labels)  # which stay, unless there are better ones
            else:
                self._first_labelling(init)
            status = self._limit(interrupted)
            if status is None:
                state = solver.start(graph, init, context)
                status = self._limit(interrupted)
            if not self.at_once and prompt and status is not None and not incumbent.proven():
                self._first_labelling(init)
            while status is None:
                progress = solver.step(state)
                if prompt and progress.labels is None and incumbent.energy == np.inf:  # the time was too short for it
                    self._first_labelling(init)
                stop = self._absorb(progress)
                if incumbent.proven():
                    status = Status.OPTIMAL
                elif proves_infeasible(graph, incumbent.bound):
                    status = Status.INFEASIBLE
                elif progress.done:
                    status = Status.CONVERGED
                elif progress.late:
                    status = Status.TIME_LIMIT
                elif stop:
                    status = Status.INTERRUPTED
                else:
                    status = self._limit(interrupted)
            if state is not None:
                final = solver.finish(state)
                incumbent.offer(final.labels)
                incumbent.raise_bound(final.bound)
                self.note, state = final.note, final.state
        return self._result(status, state)

    def _first_labelling(self, init: Init) -> None:
        """Coordinate descent from where the run starts: whatever happens next, nothing worse is returned.

        It may take a small part of a time limit, and a moment at least: where it does not end by then (millions of
        variables), the methods have better use for the time.
        """
        labels = np.array(_start(self.graph, init), dtype=np.int64)
        if first_descent(self.graph, labels, max(FIRST_PART * self.context.remaining(), FIRST_MOMENT)):
            # of a large image in few bytes; other kernels are compiled for wide labels
            self.incumbent.settled = labels if self.graph.lattice is None else labels.astype(self.graph.label_type)
        self.incumbent.offer(labels)

    def _limit(self, interrupted: threading.Event) -> Status | None:
        if interrupted.is_set():
            return Status.INTERRUPTED
        if self.context.remaining() <= 0:
            return Status.TIME_LIMIT
        limit = self.context.max_iterations
        if limit is not None and self.iterations >= limit:
            return Status.ITERATION_LIMIT
        return None

    def _visible_energy(self) -> float:
        """The incumbent's energy for people: +inf while it violates a hard constraint."""
        if self.graph.hard > 0.0 and not self.incumbent.feasible:
            return float("inf")
        return self.graph.user_energy(self.incumbent.energy)

    def _absorb(self, progress: Progress) -> bool:
        """Take in one step; True when the callback asks to stop."""
        self.iterations += progress.iterations
        self.incumbent.offer(progress.labels, progress.energy)
        self.incumbent.raise_bound(progress.bound)
        if not self.tracing and self.callback is None:
            return False
        elapsed = clock.now() - self.begin
        value = self._visible_energy()
        bound = min(self.graph.user_bound(self.incumbent.bound), value)
        if self.tracing:
            row = {"iteration": self.iterations, "elapsed": elapsed, "energy": value, "lower_bound": bound}
            self.trace.append(row | progress.info)
        if self.callback is None:
            return False
        info = Info(self.iterations, elapsed, value, bound, self.graph.lift(self.incumbent.labels), progress.info)
        return isinstance(answer := self.callback(info), bool | np.bool_) and bool(answer)

    def _result(self, status: Status, state: Any) -> Result:
        graph, incumbent = self.graph, self.incumbent
        if self.model._graph is not graph:  # energy and bound would be of two models
            raise ModelError(
                "solve: the model was changed, by the callback or another thread, while it was being solved"
            )
        labels = graph.lift(incumbent.labels)
        value = self.model.energy(labels)
        feasible = bool(np.isfinite(value))
        if not feasible:
            proof = incumbent.bound
            if not proves_infeasible(graph, proof) and len(graph.arrays.scope) < 10_000_000:
                proof = trivial_bound(graph)  # enough to prove a contradiction within one table
            if proves_infeasible(graph, proof):
                status = Status.INFEASIBLE
            elif status is Status.OPTIMAL:
                status = Status.CONVERGED
        elif incumbent.proven():
            status = Status.OPTIMAL
        bound = float("inf") if status is Status.INFEASIBLE else min(graph.user_bound(incumbent.bound), value)
        if graph.n == 0 and feasible:  # there is no other labelling, however much was lost in rounding
            bound = value
        return Result(
            labels=labels,
            energy=value,
            lower_bound=bound,
            feasible=feasible,
            status=status,
            iterations=self.iterations,
            elapsed=clock.now() - self.begin,
            method=self.method,
            options=_options(self.solver),
            trace=self.trace,
            state=state,
            note=self.note,
        )
