"""The Frank-Wolfe algorithm on the tight relaxation (paper §4.1, Algorithm 3; supplement B.1).

    minimise E(x) over the product of the simplices,   g = gradient of E at x   (g_i is the c_i of eq. 14)

    s = argmin over the simplices of <g, s>:   s_i = e_(argmin g_i) for every variable       (Algorithm 3, step 2)
    x <- x + alpha (s - x),   alpha = argmin over [0, 1] of E(x + alpha (s - x))             (eq. 17, line_search.py)

Limit points are stationary (Proposition 2).  ``steps="pairwise"`` moves the mass of one label to the best one, variable
by variable, instead of shrinking all labels alike: a label is given up in one step.  Every start ends with rounding by
block coordinate descent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tightmap.errors import OptionError
from tightmap.graph.graph import Graph
from tightmap.moves.context import Context
from tightmap.moves.soften import softened
from tightmap.solvers.capabilities import Capabilities
from tightmap.solvers.relaxed.descent import PAIRWISE, PLAIN, Descent
from tightmap.solvers.relaxed.multistart import MultiStart

STEPS = {"plain": PLAIN, "pairwise": PAIRWISE}


@dataclass(frozen=True)
class FrankWolfe(MultiStart):
    """Options of MultiStart, and steps: "plain" (the paper's) or "pairwise"."""

    steps: str = "plain"

    name: ClassVar[str] = "fw"
    summary: ClassVar[str] = "Frank-Wolfe on the tight relaxation, exact line search, five starts, BCD rounding"
    capabilities: ClassVar[Capabilities] = Capabilities(hard_costs=False, random=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps not in STEPS:
            raise OptionError(f"fw: steps must be 'plain' or 'pairwise', got {self.steps!r}")

    def descent(self, graph: Graph, context: Context) -> Descent:
        arrays, steps = softened(graph, self.hard_cost), STEPS[self.steps]
        return Descent(graph, arrays, steps, self.line_search, False, self.tolerance, self.iterations, context=context)
