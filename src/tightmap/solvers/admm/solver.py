"""ADMM on the tight nonconvex relaxation of any order (paper §4.2 and supplement B.3).

    minimise F(x^1, .., x^D)  subject to  x^1 = .. = x^D,  x^1 in the simplices,  x^d >= 0 for d > 1        (eq. 20, 21)

F is linear in every copy, F(.., x^d, ..) = <p^d, x^d> + constant, with p^d of eq. 32, and F(x, .., x) is the energy.
The augmented Lagrangian (eq. 27) is minimised over one copy after the other, each given the latest others, and then the
multipliers follow.  With the cyclic constraints x^(d-1) = x^d of eq. 24 one iteration is

    x^d <- projection of c^d on its set,   d = 1, .., D                                                     (eq. 35)
    c^1 = x^2 - (y^2 + p^1) / rho                                                                           (eq. 36)
    c^d = (x^(d-1) + x^(d+1)) / 2 + (y^d - y^(d+1) - p^d) / (2 rho),   1 < d < D                            (eq. 37)
    c^D = x^(D-1) + (y^D - p^D) / rho                                (eq. 38, which prints p^D with the wrong sign)
    y^d <- y^d + rho (x^(d-1) - x^d),   d = 2, .., D                                                        (eq. 29)

and a growing penalty rho brings the copies to agreement at a vertex.  The star and symmetric constraints (eq. 25 and
26) are in general.py; a pairwise model on a grid has kernels of its own (grid.py).

What is run by default differs from the printed algorithm where that was measured to matter: cliques are symmetrised
(every variable meets every copy), rho grows continuously instead of on stalls, its unit is the model's own kappa, hard
costs are searched with a moderate stand-in, results of many short runs on coarse and fine grids are rounded by BCD and
fused (schedule.py, incumbent.py).  Preset "paper" is the paper's penalty rule on the symmetrised form.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tightmap.energy.energies import energy
from tightmap.errors import OptionError
from tightmap.factors.effort import check_effort
from tightmap.graph.graph import Graph
from tightmap.graph.stencil import Stencil, find_stencil
from tightmap.moves.context import Context, Labels, Vector
from tightmap.moves.coordinate_descent import round_and_descend
from tightmap.moves.soften import softened
from tightmap.runtime import clock
from tightmap.runtime.pace import time_left
from tightmap.runtime.parallel import Teams
from tightmap.solvers.admm.coarse import coarsen
from tightmap.solvers.admm.engine import Engine, GeneralEngine, GridEngine, Heated, Noise, Start, without_extremes
from tightmap.solvers.admm.general import DECOMPOSITIONS, Form
from tightmap.solvers.admm.grid import fits
from tightmap.solvers.admm.incumbent import Incumbent
from tightmap.solvers.admm.kkt import kkt_residuals
from tightmap.solvers.admm.schedule import PILOT, PRESETS, Cycle, cycles
from tightmap.solvers.admm.tiles.partitioned import TiledRun, make_folder
from tightmap.solvers.admm.tiles.programme import Plan
from tightmap.solvers.base import Final, Init, Progress, Solver
from tightmap.solvers.capabilities import Capabilities

BURST = 0.05  # seconds of iterations after which a step ends
SAME_RHO = 10  # iterations between two changes of rho: a change invalidates everything that is cached
SMALL = 20_000  # labels in all: up to this, BCD rounds the relaxed vectors themselves, otherwise their largest entries
MANY = 20_000  # models of order three and more with more factors than this are not symmetrised by default
PATIENCE = 60  # cycles in a row without a lower energy after which a run ends before its time limit
STALE = 10  # cycles in a row without a lower energy after which a new search starts, to be fused with the old one
TRIED = 3  # once so many ways of treating hard costs were tried, every second cycle uses the best of them
HURRY = 0.3  # rho grows so fast that a cycle takes at most this part of the time that is left
FREEZING = 0.6  # the rho, in the units of Cycle.rho0, at which labels no longer change
FASTEST = 1.1  # largest factor by which rho grows in an iteration, however short the time is
SINGLE = 1e30  # costs from here on are searched in double precision: sums and products must stay finite
DEAD_BAND = 1e-8  # a vector that would change by less than this (squared distance) stays as it is


@dataclass
class AdmmState:
    """What a run leaves behind: the iterates of its last cycle, unless that was one on a coarse grid."""

    graph: Graph
    engine: Engine
    form: Form
    rho: float

    @property
    def copies(self) -> Vector:
        """(D, N) copies, in the layout of graph.arrays.unary."""
        return self.engine.export()[0]

    @property
    def multipliers(self) -> Vector:
        return self.engine.export()[1]

    def kkt(self) -> dict[str, float]:
        """Residuals of the optimality conditions of the decomposed problem that was searched."""
        x, y = self.engine.export()
        return kkt_residuals(self.engine.searched(self.graph.arrays), self.form, x, y, self.engine.kappa)


def _stencil(graph: Graph) -> Stencil:
    """The stencil with its weights, found anew for each use: keeping them takes a sixteenth of the memory of a run."""
    stencil = find_stencil(graph)
    assert stencil is not None
    return stencil


@dataclass
class Run:
    """State of the solver between steps."""

    graph: Graph
    context: Context
    form: Form
    stencil: Stencil | None  # without its weights
    incumbent: Incumbent
    programme: Iterator[tuple[Cycle, bool]]
    init: Init
    teams: Teams  # shared by the engines, which are made anew for every coarse grid
    cycle: Cycle | None = None
    engine: Engine | None = None  # of the present cycle
    full: Engine | None = None  # of the full model, kept until a coarse grid takes its place
    square: np.ndarray | None = None  # in a cycle on a coarse grid: the square to which every pixel belongs
    hard: tuple[float, bool] = (0.0, False)  # how the engine of the full model treats hard costs
    rho: float = 0.0
    pace: float = 0.0  # seconds of the last iteration
    allowance: float = float("inf")  # seconds that the present cycle may take
    fresh: bool = True
    iteration: int = 0  # within the cycle
    total: int = 0
    number: int = 0  # how many cycles have begun
    improved: int = 0  # number of the last cycle that lowered the lowest energy
    lowest: float = float("inf")
    stale: int = 0  # number of the last cycle that lowered the incumbent's energy
    aside: npt.NDArray[np.integer] | None = None  # the incumbent of the search before, while a fresh one runs
    epoch: int = 0  # how often the search has started afresh
    best: float = float("inf")  # smallest residual since the last change of rho, for the stall rule
    since: int = 0  # iteration at which that residual was reached
    waiting: Cycle | None = None  # while a pilot runs: the cycle that it is for
    frozen: dict[tuple[float, bool], float] = field(default_factory=dict)  # rho at the end of the pilots
    found: dict[tuple[float, bool], list[float]] = field(default_factory=dict)  # energies, by treatment of hard costs
    info: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ADMM(Solver):
    """Options of ADMM.

    preset         "default", "fast", "quality", or "paper" (one run with the paper's penalty rule, rho0 relative to the
                   largest cost, rho *= 1.2 when the residual stalls for 500 iterations)
    decomposition  "cyclic", "star" or "symmetric" (they differ for factors of three or more variables)
    symmetrize     every clique in all rotations of its positions, or once as printed; None: rotations, except in models
                   of order three and more with so many factors that D times the work is too much
    sets           "first_simplex" (the others non-negative) or "all_simplex"
    rho0, growth, overrelax   of every cycle, instead of the preset's; rho0 is in units of kappa
    unary_split    unaries shared among the copies instead of given to the first
    cache          skip what cannot change (same result, faster)
    restarts       cycles to run; None: the preset's programme, and more while a time limit leaves room
    multiscale     search on coarse grids first, where the model is a regular grid
    polish         improve the incumbent by dynamic programming over rows and columns, or forests
    precision      "single" or "double", of the search on grids (other models use double)
    tolerance      squared residual per variable at which a cycle ends
    workers        a number: the model, a regular grid, is cut into tiles of rows that so many workers share; the labels
                   do not depend on their number.  Cycles on the grid itself, a certified bound, no coarse grids
    engine         of the workers: "processes" on this machine, or "ray"
    checkpoint     folder in which the workers keep their iterates; a run that was cut off goes on from there
    tile           rows of a tile
    """

    preset: str = "default"
    decomposition: str = "cyclic"
    symmetrize: bool | None = None
    sets: str = "first_simplex"
    rho0: float | None = None
    growth: float | None = None
    overrelax: float | None = None
    unary_split: bool = False
    cache: bool = True
    restarts: int | None = None
    multiscale: bool = True
    polish: bool = True
    precision: str = "single"
    tolerance: float = 1e-5
    workers: int | None = None
    engine: str = "processes"
    checkpoint: str | None = None
    tile: int = 256

    name: ClassVar[str] = "admm"
    summary: ClassVar[str] = "ADMM on the tight nonconvex relaxation (the paper's method); strong on every family"
    capabilities: ClassVar[Capabilities] = Capabilities(hard_costs=False, random=True)

    def __post_init__(self) -> None:
        for name, allowed in (
            ("preset", PRESETS), ("decomposition", tuple(DECOMPOSITIONS)), ("sets", ("first_simplex", "all_simplex")),
            ("precision", ("single", "double")), ("engine", ("processes", "ray")),
        ):  # fmt: skip
            if getattr(self, name) not in allowed:
                raise OptionError(f"admm: {name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        if self.rho0 is not None and not self.rho0 > 0:
            raise OptionError(f"admm: rho0 must be positive, got {self.rho0}")
        if self.growth is not None and not self.growth >= 1:
            raise OptionError(f"admm: growth must be at least 1, got {self.growth}")
        if self.overrelax is not None and not 0 < self.overrelax < 2:
            raise OptionError(f"admm: overrelax must be between 0 and 2, got {self.overrelax}")
        if self.restarts is not None and self.restarts < 1:
            raise OptionError(f"admm: restarts must be at least 1, got {self.restarts}")
        if not self.tolerance >= 0:
            raise OptionError(f"admm: tolerance must be at least 0, got {self.tolerance}")
        if self.workers is not None and self.workers < 1:
            raise OptionError(f"admm: workers must be at least 1, got {self.workers}")
        if self.tile < 2:
            raise OptionError(f"admm: tile must be at least 2 rows, got {self.tile}")
        if self.checkpoint is not None and self.workers is None:
            raise OptionError("admm: checkpoint is for a run with workers")

    def check(self, graph: Graph) -> None:
        super().check(graph)
        check_effort(graph, self.name, contraction=True)

    def start(self, graph: Graph, init: Init, context: Context) -> Run | TiledRun:
        if self.workers is not None:
            return TiledRun.begin(graph, context, self._partition(self.workers, context.seed), self.tile)
        symmetrize = (graph.order <= 2 or graph.m <= MANY) if self.symmetrize is None else self.symmetrize
        form = Form(
            max(2, graph.order), DECOMPOSITIONS[self.decomposition], symmetrize, self.sets == "all_simplex",
            self.unary_split, 1.0,
        )  # fmt: skip
        plain = symmetrize and self.sets == "first_simplex" and not self.unary_split
        plain = plain and self.decomposition != "symmetric"
        stencil = find_stencil(graph) if plain else None
        stencil = stencil.outline() if stencil is not None and fits(stencil) else None
        incumbent = Incumbent(graph, context, self.polish and self.preset != "paper")
        programme = self._programme(graph, stencil, context.seed)
        run = Run(graph, context, form, stencil, incumbent, programme, init, Teams(context.threads))
        if init.labels is not None:
            incumbent.offer(init.labels.copy())
        return run

    def _partition(self, workers: int, seed: int) -> Plan:
        """The run of ``tiles``: the cycles of the preset on the grid itself."""
        cycle = replace(Cycle(), growth={"fast": 1.01, "quality": 1.001}.get(self.preset, Cycle.growth))
        cycle = replace(cycle, rho0=self.rho0 or cycle.rho0, growth=self.growth or cycle.growth)
        relaxations = (1.0, 1.6) if self.overrelax is None else (self.overrelax,) * 2
        count = 2 if self.restarts is None else self.restarts
        return Plan(
            workers=workers,
            engine=self.engine,
            checkpoint=None if self.checkpoint is None else make_folder(self.checkpoint),
            cycles=tuple(replace(cycle, relax=relaxations[k % 2]) for k in range(count)),
            tolerance=self.tolerance,
            seed=seed,
            double=self.precision == "double",
        )

    # ------------------------------------------------------------------------------------------------ cycles

    def _programme(self, graph: Graph, stencil: Stencil | None, seed: int) -> Iterator[tuple[Cycle, bool]]:
        levels: tuple[int, ...] = ()
        if stencil is not None and self.multiscale and self.preset != "paper":
            small = min(stencil.height, stencil.width)
            levels = tuple(f for f in (2, 3, 4) if small // f >= 8)
        small = len(graph.arrays.unary) <= 10 * SMALL
        return cycles(self.preset, stencil is not None, levels, seed, small)

    def _next_cycle(self, run: Run) -> bool:
        """Set up the next cycle; False when the programme is over."""
        spare = run.context.deadline is not None or run.context.max_iterations is not None
        if spare and self.restarts is None and run.number - run.stale >= STALE and run.waiting is None:
            self._start_afresh(run)
        if run.waiting is not None:  # a pilot has just been run for it
            cycle, planned = run.waiting, True
            run.waiting = None
        else:
            cycle, planned = next(run.programme)
            planned = planned and run.epoch == 0
        if self.restarts is not None:
            planned = run.number < self.restarts
            if not planned:
                return False
        elif not planned and (not spare or run.number - run.improved > max(PATIENCE, run.improved)):
            return False
        if len(run.found) >= TRIED and run.number % 2 and cycle.stall == 0:
            hard, ban = min(run.found, key=lambda way: float(np.mean(run.found[way])))
            cycle = replace(cycle, hard=hard, ban=ban)
        cycle = replace(
            cycle,
            rho0=cycle.rho0 if self.rho0 is None else self.rho0,
            growth=cycle.growth if self.growth is None else self.growth,
            relax=cycle.relax if self.overrelax is None else self.overrelax,
        )
        run.cycle, run.iteration, run.number = cycle, 0, run.number + 1
        run.best, run.since, run.fresh = float("inf"), 0, True
        run.allowance = HURRY * run.context.remaining()
        eps = 0.0 if self.preset == "paper" else DEAD_BAND
        engine = self._engine(run, cycle, eps)
        run.engine = engine
        unit = engine.kappa
        if run.stencil is None and cycle.stall == 0 and self.rho0 is None:
            if run.hard in run.frozen:
                unit = 2.0 * run.frozen[run.hard]
            else:
                run.waiting, cycle = cycle, replace(PILOT, hard=cycle.hard, ban=cycle.ban)
                run.cycle = cycle
        run.rho = cycle.rho0 * unit
        if self.preset == "paper" and run.number == 1 and self.rho0 is None:
            run.rho = 0.001 * max(engine.kappa, float(np.abs(run.graph.arrays.unary).max(initial=0.0)))
        self._place(run, cycle, engine)
        return True

    def _start_afresh(self, run: Run) -> None:
        """Put the incumbent aside and search without it; two searches that ended differently fuse well."""
        run.stale = run.number
        now = run.incumbent
        if run.aside is not None:
            now.offer(run.aside.astype(np.int64))
            now.polish()
            run.aside = None
            if now.energy < run.lowest:
                run.lowest, run.improved = now.energy, run.number
            return
        if now.labels is not None:
            run.aside = now.labels.astype(run.graph.label_type)
        run.epoch += 1
        run.incumbent = Incumbent(run.graph, run.context, self.polish)
        run.programme = self._programme(run.graph, run.stencil, run.context.seed + 1000 * run.epoch)

    def _engine(self, run: Run, cycle: Cycle, eps: float) -> Engine:
        graph = run.graph
        run.square = None
        if run.stencil is not None:
            single = self.precision == "single" and float(np.abs(graph.arrays.unary).max(initial=0.0)) < SINGLE
            dtype = np.float32 if single else np.float64
            threads = run.context.threads
            if cycle.factor > 1:
                run.full = run.engine = None  # both grids together would need a quarter more memory
                unary = graph.arrays.unary.reshape(graph.n, -1)
                coarse = coarsen(_stencil(graph), unary, cycle.factor, cycle.offset)
                run.square = coarse.square
                return GridEngine(coarse.stencil, coarse.unary, eps, dtype, threads, self.cache, run.teams)
            if run.full is None:
                run.engine = None
                run.full = GridEngine(_stencil(graph), graph.arrays.unary, eps, dtype, threads, self.cache, run.teams)
            return run.full
        ban = cycle.ban and graph.hard > 0.0
        if run.full is None or (graph.hard > 0.0 and run.hard != (cycle.hard, ban)):
            run.hard = (cycle.hard, ban)
            g = softened(graph, cycle.hard)
            if ban:
                g = without_extremes(g)
            run.full = GeneralEngine(g, run.form, eps, run.context.threads, self.cache)
        return run.full

    def _place(self, run: Run, cycle: Cycle, engine: Engine) -> None:
        """The starting point of a cycle."""
        noise: Noise | None = None
        size = engine.variables * run.stencil.labels if run.stencil is not None else len(run.graph.arrays.unary)
        if cycle.noise > 0:
            noise = Noise(cycle.noise * engine.kappa, [run.context.seed, 2, run.number])
        if run.number == 1 and run.square is None:
            earlier = run.init.state
            if isinstance(earlier, AdmmState) and earlier.copies.shape == (run.form.copies, size):
                engine.load(*earlier.engine.export())
                run.rho = earlier.rho
                return
        start: Start = None
        if run.number == 1 and run.init.relaxed is not None and run.square is None:
            start = run.init.relaxed
        elif cycle.heat < 1.0 and run.incumbent.labels is not None and run.square is None:
            start = Heated(run.incumbent.labels, cycle.heat)
        engine.reset(start, noise)

    # ------------------------------------------------------------------------------------------------ steps

    def step(self, run: Run | TiledRun) -> Progress:
        """Some iterations of the present cycle, up to the next rounding."""
        if isinstance(run, TiledRun):
            return run.step()
        if run.cycle is None and not self._next_cycle(run):
            return Progress(done=True, iterations=0)
        cycle, engine = run.cycle, run.engine
        assert cycle is not None and engine is not None
        begin, before = clock.now(), run.iteration
        limit = run.total + run.context.iterations_left(run.total)
        over = False
        while True:
            count = min(1 if cycle.stall else self._same_rho(run), cycle.limit - run.iteration)
            count = int(max(1, min(count, limit - run.total)))
            sweeping = clock.now()
            residual, active = engine.sweeps(run.rho, cycle.relax, count, run.fresh, time_left(run.context))
            run.pace = (clock.now() - sweeping) / count
            run.iteration += count
            run.total += count
            run.info = {"residual": residual, "rho": run.rho, "active": active, "cycle": float(run.number)}
            if run.context.remaining() <= 0.0:  # what there is will be rounded at the end
                return Progress(iterations=run.iteration - before, info=run.info)
            over = residual <= self.tolerance or run.iteration >= cycle.limit
            self._grow(run, cycle, residual, count)
            if over or self._rounding_due(run) or run.total >= limit:
                break
            if self._burst_over(run, clock.now() - begin, (run.iteration - before) * engine.effort):
                return Progress(iterations=run.iteration - before, info=run.info)
        done = run.iteration - before
        proposal = self._rounded(run)
        fell = run.incumbent.offer(proposal)
        if over and run.graph.hard > 0.0:
            run.found.setdefault(run.hard, []).append(energy(run.graph, proposal))
        del proposal  # polishing needs the memory
        if over:
            if fell or run.stale == run.number or run.number == 1:
                run.incumbent.polish()
            run.cycle = None
            if run.square is None and cycle.heat == 1.0:
                run.frozen[run.hard] = min(run.rho, run.frozen.get(run.hard, np.inf))
        if fell:
            run.stale = run.number
            if run.incumbent.energy < run.lowest:
                run.lowest, run.improved = run.incumbent.energy, run.number
        return Progress(labels=run.incumbent.labels, iterations=done, info=run.info, energy=run.incumbent.energy)

    def _burst_over(self, run: Run, seconds: float, effort: float) -> bool:
        """Whether a step ends here.  Without a time limit nothing looks at the clock: a run can be repeated exactly."""
        return seconds > BURST if run.context.deadline is not None else 1e-9 * effort > BURST

    def _same_rho(self, run: Run) -> int:
        """Iterations at one rho: fewer where one takes long, so that time limits are kept."""
        if run.context.deadline is None or len(run.graph.arrays.unary) <= 10 * SMALL:
            return SAME_RHO
        if run.pace == 0.0:
            return 1
        return int(np.clip(BURST / run.pace, 1, SAME_RHO))

    def _growth(self, run: Run, cycle: Cycle) -> float:
        """Of rho, per iteration: the cycle's own, or more where a cycle would not end within a part of the time."""
        if self.growth is not None or not np.isfinite(run.allowance):
            return cycle.growth
        needed = run.pace * math.log(FREEZING / cycle.rho0) / max(run.allowance, 1e-9)
        return max(cycle.growth, math.exp(min(needed, math.log(FASTEST))))

    def _grow(self, run: Run, cycle: Cycle, residual: float, count: int) -> None:
        """The penalty for the next iterations."""
        if cycle.stall == 0:
            run.rho *= self._growth(run, cycle) ** count
            run.fresh = True
            return
        run.fresh = False
        if residual < run.best:
            run.best, run.since = residual, run.iteration
        if run.iteration >= cycle.stall and run.iteration - run.since >= cycle.stall:
            run.rho *= cycle.growth
            run.best, run.since, run.fresh = residual, run.iteration, True

    def _rounding_due(self, run: Run) -> bool:
        if run.square is not None:
            return False
        often = len(run.graph.arrays.unary) <= 50 * SMALL
        return run.iteration % (100 if often else 200) == 0 or (often and run.number == 1 and run.iteration == 30)

    def _rounded(self, run: Run) -> Labels:
        assert run.engine is not None
        if run.square is not None:
            return run.engine.labels()[run.square]
        if len(run.graph.arrays.unary) <= SMALL:
            return round_and_descend(run.graph, run.engine.relaxed(), run.context)
        return run.engine.labels()

    def finish(self, run: Run | TiledRun) -> Final:
        if isinstance(run, TiledRun):
            return run.finish()
        if run.aside is not None:
            run.incumbent.offer(run.aside.astype(np.int64))
        if run.cycle is not None and run.engine is not None and run.iteration > 0:
            run.incumbent.offer(self._rounded(run))
        if run.context.remaining() > 0:
            run.incumbent.polish()
        where = "a grid, eight pixels at a time" if run.stencil is not None else "a general graph"
        note = f"ADMM on {where}, {run.form.copies} copies; {run.number} cycles, {run.total} iterations"
        state = None
        if run.full is not None:
            state = AdmmState(run.graph, run.full, run.form, run.rho)
        return Final(labels=run.incumbent.labels, state=state, note=note)
