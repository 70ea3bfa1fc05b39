"""MPLP and MPLP-C: max-product linear programming, and its tightening by clusters (Globerson and Jaakkola 2007; Sontag
et al. 2008, 2012).

    maximise over messages m   sum_i min b_i + sum_A min [theta_A - sum_j m_{A->j}],     b_i = theta_i + sum_A m_{A->i}

MPLP ascends this dual of the linear relaxation block by block: a factor A takes the beliefs of its variables and gives
them back in equal shares.  For all variables j of A at once,

    u_j = b_j - m_{A->j},     t(x_A) = theta_A(x_A) + sum_j u_j(x_j)
    b_j <- (1 / |A|) min over the other variables of A of t,     m_{A->j} <- b_j - u_j

The bound never falls; it is that of the local polytope at best, and coordinate ascent may stop below it.

MPLP-C then adds clusters where they are guaranteed to raise the bound: triplets of pairs, by

    gain(i, j, k) = min_x (b_ij + b_ik + b_jk) - min b_ij - min b_ik - min b_jk >= 0     (tighten.py),

or triplets around one variable that see a contradiction among nearly minimal labels (singleton_consistency.py),
whichever promise more, and where there are none left frustrated cycles, triangulated; until the bound meets the energy.
The clusters cost nothing themselves and send messages to their pairs by the same update.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tightmap.errors import OptionError
from tightmap.graph.graph import Graph
from tightmap.moves.context import Context
from tightmap.moves.orders import node_order
from tightmap.solvers.base import Progress
from tightmap.solvers.capabilities import Capabilities
from tightmap.solvers.regions.mplp_run import MplpRun
from tightmap.solvers.regions.regions import build_regions
from tightmap.solvers.regions.run import Pace, Run, iterate, tighten
from tightmap.solvers.regions.solver import RegionSolver
from tightmap.solvers.regions.srmp import SrmpRun

KINDS = ("all", "triplets", "cycles", "singletons")  # of clusters


@dataclass(frozen=True)
class MPLP(RegionSolver):
    """Options of MPLP.

    rounding   a labelling is rounded (and the bound computed) every so many iterations
    polish     coordinate descent from every rounding
    tolerance  stop when 10 iterations raise the bound by less than this, relative to the bound
    """

    rounding: int = 5
    polish: bool = True
    tolerance: float = 1e-8

    name: ClassVar[str] = "mplp"
    summary: ClassVar[str] = "max-product linear programming: block ascent of the linear relaxation, certified bounds"
    capabilities: ClassVar[Capabilities] = Capabilities(bounds=True)

    def run(self, graph: Graph, context: Context) -> MplpRun:
        return MplpRun(build_regions(graph, "minimal", context=context), context)

    def work(self, run: Run, pace: Pace) -> Iterator[Progress | None]:
        return iterate(run, pace, last=True)


@dataclass(frozen=True)
class MPLPC(RegionSolver):
    """Options of MPLP-C.

    clusters   "triplets" of pairs, "singletons" (contradictions around one variable), frustrated "cycles", or "all":
               what promises most
    updates    "mplp" (block updates, as in the original) or "srmp" (sequential passes; may stall earlier)
    first      iterations before the first clusters, at most
    inner      iterations between two rounds of clusters, at most
    per_round  clusters added in a round; 0: a tenth of the number of pairs, between 20 and 2000
    rounding   a labelling is rounded every so many iterations
    polish     coordinate descent from every rounding
    tolerance  stop when no cluster is left and 10 iterations raise the bound by less than this, relative to the bound
    """

    clusters: str = "all"
    updates: str = "mplp"
    first: int = 1000
    inner: int = 20
    per_round: int = 0
    rounding: int = 5
    polish: bool = True
    tolerance: float = 1e-8

    name: ClassVar[str] = "mplp-c"
    summary: ClassVar[str] = "message passing that adds triplets and frustrated cycles until the bound meets the energy"
    capabilities: ClassVar[Capabilities] = Capabilities(bounds=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clusters not in KINDS:
            raise OptionError(f"mplp-c: clusters must be one of {', '.join(KINDS)}, got {self.clusters!r}")
        if self.updates not in ("srmp", "mplp"):
            raise OptionError(f"mplp-c: updates must be 'srmp' or 'mplp', got {self.updates!r}")
        if self.first < 1 or self.inner < 1 or self.per_round < 0:
            raise OptionError("mplp-c: first and inner must be at least 1, per_round at least 0")

    def run(self, graph: Graph, context: Context) -> Run:
        make = SrmpRun if self.updates == "srmp" else MplpRun
        return make(build_regions(graph, "full", (), node_order(graph, "index"), context), context)

    def work(self, run: Run, pace: Pace) -> Iterator[Progress | None]:
        return tighten(run, pace, self.clusters, self.first, self.inner, self.per_round)
