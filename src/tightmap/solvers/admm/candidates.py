"""From iterates to labellings: when they are rounded, and what becomes of the roundings.

A rounding is the largest entry of every vector of the first copy, or in small models what coordinate descent makes of
the vectors themselves (it never raises the energy of a relaxed point).  Roundings are fused into one labelling, and
the result is polished at the end of a cycle (fused_labelling.py).

Fusing finds ever less once that labelling has taken in what all cycles agree on.  After some cycles without a lower
energy it is therefore put aside and a search begins without it; when that one stops improving too, the two are
fused: searches that ended differently fuse well.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tightmap.energy.energies import energy
from tightmap.graph.graph import Graph
from tightmap.moves.context import Context, Labels
from tightmap.moves.coordinate_descent import round_and_descend
from tightmap.solvers.admm.engine import Splitting
from tightmap.solvers.admm.fused_labelling import FusedLabelling

SMALL = 20_000  # labels in all: up to this, descent rounds the vectors themselves, otherwise their largest entries
OFTEN = 1_000_000  # labels in all: up to this, iterates are rounded every 100 iterations, otherwise every 200
STALE = 10  # cycles in a row without a lower energy after which a new search starts, to be fused with the old one

Squares = npt.NDArray[np.int64] | None  # in a cycle on a coarse grid: the square to which every pixel belongs


class Candidates:
    """The fused labelling of the present search, that of the one before, and which cycles have improved them."""

    def __init__(self, graph: Graph, context: Context, polish: bool, polish_later: bool) -> None:
        self.graph, self.context = graph, context
        self.fused = FusedLabelling(graph, context, polish)
        self.fell = 0  # number of the last cycle that lowered the energy of the present search
        self.improved = 0  # number of the last cycle that lowered the lowest energy of all searches
        self._lowest = float("inf")
        self._aside: npt.NDArray[np.integer] | None = None  # what the search before had fused
        self._polish_later = polish_later  # polish in the searches after the first one

    def due(self, number: int, iteration: int) -> bool:
        """Whether it is time to round in the middle of a cycle on the model itself."""
        often = len(self.graph.unary) <= OFTEN
        return iteration % (100 if often else 200) == 0 or (often and number == 1 and iteration == 30)

    def _rounded(self, engine: Splitting, squares: Squares) -> Labels:
        if squares is not None:
            return engine.labels()[squares]
        if len(self.graph.unary) <= SMALL:
            return round_and_descend(self.graph, engine.relaxed(), self.context)
        return engine.labels()

    def collect(self, engine: Splitting, squares: Squares, number: int, over: bool) -> float | None:
        """Round the iterates of cycle ``number`` and fuse; polish when it is over.

        Returns the energy of the rounding at the end of a cycle where there are hard costs, which it is wanted for.
        """
        proposal = self._rounded(engine, squares)
        fell = self.fused.offer(proposal)
        value = energy(self.graph, proposal) if over and self.graph.hard > 0.0 else None
        del proposal  # polishing needs the memory
        if over and (fell or self.fell == number or number == 1):
            self.fused.polish()
        if fell:
            self.fell = number
            self._note_lowest(number)
        return value

    def _note_lowest(self, number: int) -> None:
        if self.fused.energy < self._lowest:
            self._lowest, self.improved = self.fused.energy, number

    def stale(self, number: int) -> bool:
        return number - self.fell >= STALE

    def start_afresh(self, number: int) -> bool:
        """Put what was fused aside and search without it; False where some is aside already: then the two are fused."""
        self.fell = number
        now = self.fused
        if self._take_back():
            now.polish()
            self._note_lowest(number)
            return False
        if now.labels is not None:
            self._aside = now.labels.astype(self.graph.label_type)
        self.fused = FusedLabelling(self.graph, self.context, self._polish_later)
        return True

    def _take_back(self) -> bool:
        """Fuse the labelling with the one that is aside, if any."""
        if self._aside is None:
            return False
        self.fused.offer(self._aside.astype(np.int64))
        self._aside = None
        return True

    def conclude(self, engine: Splitting | None, squares: Squares) -> None:
        """At the end of the run: everything that was found, and what an unfinished cycle has."""
        self._take_back()
        if engine is not None:
            self.fused.offer(self._rounded(engine, squares))
        if self.context.remaining() > 0:
            self.fused.polish()
