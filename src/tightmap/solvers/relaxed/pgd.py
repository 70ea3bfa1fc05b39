"""Projected gradient descent on the tight relaxation (paper §4.1, Algorithm 2; supplement B.1).

    minimise E(x) over the product of the simplices,   g = gradient of E at x   (g_i is the c_i of eq. 14)

    s = argmin over the simplices of |x - beta g - s|^2, a projection for every variable     (eq. 16, moves/simplex.py)
    x <- x + alpha (s - x),   alpha = argmin over [0, 1] of E(x + alpha (s - x))             (eq. 17, line_search.py)

Limit points are stationary (Proposition 2).  The paper uses beta = 1 on potentials scaled to [-1, 1]; here the length
is the spectral one of Barzilai and Borwein, <dx, dx> / <dx, dg>, which adapts to the model, and "fixed" is the paper's,
in units of the typical range of the gradient.  Every start ends with rounding by block coordinate descent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tightmap.errors import OptionError
from tightmap.graph.graph import Graph
from tightmap.moves.context import Context
from tightmap.moves.soften import softened
from tightmap.solvers.capabilities import Capabilities
from tightmap.solvers.relaxed.descent import PROJECTED, Descent
from tightmap.solvers.relaxed.multistart import MultiStart


@dataclass(frozen=True)
class PGD(MultiStart):
    """Options of MultiStart, and step_rule, the length of the gradient step: "spectral" or "fixed" (1 / scale)."""

    step_rule: str = "spectral"

    name: ClassVar[str] = "pgd"
    summary: ClassVar[str] = "projected gradient on the tight relaxation, exact line search, five starts, BCD rounding"
    capabilities: ClassVar[Capabilities] = Capabilities(hard_costs=False, random=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step_rule not in ("spectral", "fixed"):
            raise OptionError(f"pgd: step_rule must be 'spectral' or 'fixed', got {self.step_rule!r}")

    def descent(self, graph: Graph, context: Context) -> Descent:
        spectral = self.step_rule == "spectral" and self.line_search != "diminishing"
        return Descent(
            graph,
            softened(graph, self.hard_cost),
            PROJECTED,
            self.line_search,
            spectral,
            self.tolerance,
            self.iterations,
            context=context,
        )
