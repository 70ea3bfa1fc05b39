"""One run of ADMM: cycle after cycle, each one algorithm 4 of the paper under a growing penalty.

until the programme, the time or the iterations are over:
    take the next cycle (restarts.py), the version of the model it searches (versions.py) and its starting point
    until the residual (eq. 30) is small or the cycle has made its iterations:
        x^1, .., x^D and y by some iterations at one rho (eq. 28 and 29: updates.py)
        a larger rho, by the cycle's rule (penalty.py)
        now and then, and at the end: round x^1 and fuse with the labelling so far (candidates.py)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tightmap.graph.graph import Graph
from tightmap.moves.context import Context, Vector
from tightmap.runtime import clock
from tightmap.runtime.pace import time_left
from tightmap.solvers.admm.candidates import Candidates
from tightmap.solvers.admm.engine import Heated, Noise, Splitting, Start
from tightmap.solvers.admm.kkt import kkt_residuals
from tightmap.solvers.admm.penalty import BURST, HURRY, Annealing
from tightmap.solvers.admm.restarts import Programme
from tightmap.solvers.admm.schedule import Cycle
from tightmap.solvers.admm.updates import Form
from tightmap.solvers.admm.versions import Versions
from tightmap.solvers.base import Final, Init, Progress


@dataclass
class AdmmState:
    """What a run leaves behind: the iterates of its last cycle, unless that was one on a coarse grid."""

    graph: Graph
    engine: Splitting
    form: Form
    rho: float

    @property
    def copies(self) -> Vector:
        """(D, N) copies, in the layout of graph.arrays.unary."""
        return self.engine.export().copies

    @property
    def multipliers(self) -> Vector:
        return self.engine.export().multipliers

    def kkt(self) -> dict[str, float]:
        """Residuals of the optimality conditions of the decomposed problem that was searched."""
        x, y = self.engine.export()
        return kkt_residuals(self.engine.searched(self.graph.arrays), self.form, x, y, self.engine.kappa)


@dataclass
class Run:
    """State of the solver between steps."""

    graph: Graph
    context: Context
    init: Init
    tolerance: float  # squared residual per variable at which a cycle ends
    versions: Versions  # the engines
    programme: Programme  # the cycles
    candidates: Candidates  # the labellings
    annealing: Annealing | None = None  # the present cycle, or the last one when it is over
    total: int = 0  # iterations
    info: dict[str, float] = field(default_factory=dict)  # for the trace

    # ------------------------------------------------------------------------------------------------ cycles

    def _next_cycle(self) -> Annealing | None:
        """Set up the next cycle; None when the programme is over."""
        context, programme, candidates = self.context, self.programme, self.candidates
        limited = context.deadline is not None or context.max_iterations is not None
        endless = limited and programme.rules.restarts is None
        stale = endless and candidates.stale(programme.number) and programme.waiting is None
        if stale and candidates.start_afresh(programme.number):
            programme.start_afresh()
        cycle = programme.next(limited, candidates.improved)
        if cycle is None:
            return None
        allowance = HURRY * context.remaining()
        engine = self.versions.prepare(cycle)
        cycle, rho = programme.first_rho(cycle, self.versions.treatment, engine.kappa)
        rho = self._place(cycle, engine, rho)
        pace = 0.0 if self.annealing is None else self.annealing.pace
        self.annealing = Annealing(cycle, rho, allowance, programme.rules.growth is None, pace)
        return self.annealing

    def _place(self, cycle: Cycle, engine: Splitting, rho: float) -> float:
        """Go to the starting point of a cycle; returns its rho, which is an earlier run's where that goes on."""
        number, itself = self.programme.number, self.versions.squares is None
        if number == 1 and itself:
            earlier = self.init.state
            shape = (self.versions.form.copies, self.versions.size)
            if isinstance(earlier, AdmmState) and earlier.copies.shape == shape:
                engine.load(earlier.engine.export())
                return earlier.rho
        start: Start = None
        if number == 1 and self.init.relaxed is not None and itself:
            start = self.init.relaxed
        elif cycle.heat < 1.0 and self.candidates.fused.labels is not None and itself:
            start = Heated(self.candidates.fused.labels, cycle.heat)
        noise = Noise(cycle.noise * engine.kappa, [self.context.seed, 2, number]) if cycle.noise > 0 else None
        engine.reset(start, noise)
        return rho

    # ------------------------------------------------------------------------------------------------ steps

    def step(self) -> Progress:
        """Some iterations of the present cycle, up to the next rounding."""
        annealing = self.annealing
        if annealing is None or annealing.over:
            annealing = self._next_cycle()
        if annealing is None:
            return Progress(done=True, iterations=0)
        engine = self.versions.engine
        assert engine is not None
        begin, before = clock.now(), annealing.iteration
        limit = self.total + self.context.iterations_left(self.total)
        while True:
            residual = self._iterate(annealing, engine, limit)
            done = annealing.iteration - before
            if self.context.remaining() <= 0.0:  # what there is will be rounded at the end
                return Progress(iterations=done, info=self.info)
            over = residual <= self.tolerance or annealing.at_limit
            annealing.grow(residual)
            if over or self._rounding_due(annealing) or self.total >= limit:
                break
            if self._burst_over(clock.now() - begin, done * engine.effort):
                return Progress(iterations=done, info=self.info)
        self._round(annealing, engine, over)
        fused = self.candidates.fused
        return Progress(labels=fused.labels, iterations=done, info=self.info, energy=fused.energy)

    def _iterate(self, annealing: Annealing, engine: Splitting, limit: float) -> float:
        """Some iterations at one rho; returns the residual (eq. 30, squared, per variable)."""
        count = annealing.iterations(self.context, len(self.graph.unary), limit - self.total)
        begin = clock.now()
        residual, active = engine.iterate(count, annealing.step, time_left(self.context))
        annealing.advance(count, clock.now() - begin)
        self.total += count
        number = float(self.programme.number)
        self.info = {"residual": residual, "rho": annealing.rho, "active": active, "cycle": number}
        return residual

    def _burst_over(self, seconds: float, effort: float) -> bool:
        """Whether a step ends here.  Without a time limit nothing looks at the clock: a run can be repeated exactly."""
        return seconds > BURST if self.context.deadline is not None else 1e-9 * effort > BURST

    def _rounding_due(self, annealing: Annealing) -> bool:
        if self.versions.squares is not None:  # a coarse grid is rounded at the end of its cycle only
            return False
        return self.candidates.due(self.programme.number, annealing.iteration)

    def _round(self, annealing: Annealing, engine: Splitting, over: bool) -> None:
        """Make labels of the iterates, and tell the programme where a cycle has ended."""
        versions, programme = self.versions, self.programme
        value = self.candidates.collect(engine, versions.squares, programme.number, over)
        annealing.over = over
        if value is not None:
            programme.ended(versions.treatment, value)
        if over and versions.squares is None and annealing.cycle.heat == 1.0:
            programme.froze(versions.treatment, annealing.rho)

    def finish(self) -> Final:
        versions, annealing = self.versions, self.annealing
        running = annealing is not None and not annealing.over and annealing.iteration > 0
        self.candidates.conclude(versions.engine if running else None, versions.squares)
        where = "a grid, eight pixels at a time" if versions.stencil is not None else "a general graph"
        counts = f"{self.programme.number} cycles, {self.total} iterations"
        note = f"ADMM on {where}, {versions.form.copies} copies; {counts}"
        state = None
        if versions.full is not None:
            rho = 0.0 if annealing is None else annealing.rho
            state = AdmmState(self.graph, versions.full, versions.form, rho)
        return Final(labels=self.candidates.fused.labels, state=state, note=note)
