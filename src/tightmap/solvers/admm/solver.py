"""ADMM on the tight nonconvex relaxation of any order (paper section 4.2 and supplement B.3): its options.

    minimise F(x^1, .., x^D)  subject to  x^1 = .. = x^D,  x^1 in the simplices,  x^d >= 0 for d > 1        (eq. 20, 21)

F is linear in every copy and F(x, .., x) is the energy.  One iteration minimises the augmented Lagrangian (eq. 27) over
one copy after the other and then moves the multipliers; a growing penalty rho brings the copies to agreement at a
vertex.  With the cyclic constraints x^(d-1) = x^d and p^d, the gradient of F in x^d,

    x^d <- projection of c^d on its set,   d = 1, .., D                                                     (eq. 35)
    c^1 = x^2 - (y^2 + p^1) / rho                                                                           (eq. 36)
    c^d = (x^(d-1) + x^(d+1)) / 2 + (y^d - y^(d+1) - p^d) / (2 rho),   1 < d < D                            (eq. 37)
    c^D = x^(D-1) + (y^D - p^D) / rho                                (eq. 38, which prints p^D with the wrong sign)
    y^d <- y^d + rho (x^(d-1) - x^d),   d = 2, .., D                                                        (eq. 29)

Where to read on:

    updates.py      these equations, and those of the star and symmetric constraints, as kernels
    run.py          the loop of a run: iterations, penalty, rounding
    penalty.py      how rho grows within a cycle           schedule.py, restarts.py   which cycles are run
    candidates.py   from iterates to labellings            fused_labelling.py   how these are fused and polished
    versions.py     what the iterates see: coarse grids (coarse.py), stand-ins for hard costs
    general.py      the engine of any model                grid.py   that of regular grids, with kernels of their own
    tiles/          option ``workers``: a grid in tiles of rows, on several processes or machines

What is run by default differs from the printed algorithm where that was measured to matter: cliques are symmetrised
(every variable meets every copy), rho grows continuously instead of on stalls, its unit is the model's own kappa, hard
costs are searched with a moderate stand-in, results of many short runs on coarse and fine grids are rounded by BCD and
fused.  Preset "paper" is the paper's penalty rule on the symmetrised form.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tightmap.errors import OptionError
from tightmap.factors.effort import check_effort
from tightmap.graph.graph import Graph
from tightmap.graph.stencil import Stencil, find_stencil
from tightmap.moves.context import Context
from tightmap.solvers.admm.candidates import Candidates
from tightmap.solvers.admm.grid_layout import fits
from tightmap.solvers.admm.restarts import Programme, Rules, Terrain
from tightmap.solvers.admm.run import Run
from tightmap.solvers.admm.schedule import PRESETS, Cycle
from tightmap.solvers.admm.tiles.partitioned import TiledRun, make_folder
from tightmap.solvers.admm.tiles.programme import Plan
from tightmap.solvers.admm.updates import DECOMPOSITIONS, Form
from tightmap.solvers.admm.versions import Versions
from tightmap.solvers.base import Final, Init, Progress, Solver
from tightmap.solvers.capabilities import Capabilities

MANY = 20_000  # models of order three and more with more factors than this are not symmetrised by default
CHEAP = 200_000  # labels in all: up to this a slow cycle on a grid takes no more than a second
DEAD_BAND = 1e-8  # a vector that would change by less than this (squared distance) stays as it is
NARROWEST = 8  # squares: a coarse grid has no fewer rows and columns


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
    polish         improve the labelling by dynamic programming over rows and columns, or forests
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
        form = self._form(graph)
        stencil = self._stencil(graph, form)
        polish = self.polish and self.preset != "paper"  # which goes on as the default where time is left
        candidates = Candidates(graph, context, polish, self.polish)
        if init.labels is not None:
            candidates.fused.offer(init.labels.copy())
        return Run(
            graph,
            context,
            init,
            self.tolerance,
            versions=Versions(
                graph,
                form,
                stencil,
                eps=0.0 if self.preset == "paper" else DEAD_BAND,
                single=self.precision == "single",
                cached=self.cache,
                threads=context.threads,
            ),
            programme=Programme(
                Rules(self.preset, self.rho0, self.growth, self.overrelax, self.restarts),
                self._terrain(graph, stencil),
                context.seed,
            ),
            candidates=candidates,
        )

    def _form(self, graph: Graph) -> Form:
        symmetrize = (graph.order <= 2 or graph.m <= MANY) if self.symmetrize is None else self.symmetrize
        return Form(
            copies=max(2, graph.order),
            decomposition=DECOMPOSITIONS[self.decomposition],
            symmetrize=symmetrize,
            all_simplex=self.sets == "all_simplex",
            unary_split=self.unary_split,
            relax=1.0,
        )

    def _stencil(self, graph: Graph, form: Form) -> Stencil | None:
        """Of a regular grid whose kernels do what the options ask for, without its weights."""
        if not form.symmetrize or form.all_simplex or form.unary_split or self.decomposition == "symmetric":
            return None
        stencil = find_stencil(graph, images=False)
        return stencil.outline() if stencil is not None and fits(stencil) else None

    def _terrain(self, graph: Graph, stencil: Stencil | None) -> Terrain:
        levels: tuple[int, ...] = ()
        if stencil is not None and self.multiscale and self.preset != "paper":
            side = min(stencil.height, stencil.width)
            levels = tuple(factor for factor in (2, 3, 4) if side // factor >= NARROWEST)
        unary = graph.unary
        return Terrain(grid=stencil is not None, levels=levels, small=len(unary) <= CHEAP, unary=unary)

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

    def step(self, run: Run | TiledRun) -> Progress:
        return run.step()

    def finish(self, run: Run | TiledRun) -> Final:
        return run.finish()
