"""FactorKind: what the library knows about one kind of factor of the canonical form.

Every kind has a file of its own, with the user's block, the kernels and an object of this class, and one row in
``kinds.py``.  Whoever treats kinds differently asks the row: the dispatch of the kernels, the canonical form, the
estimate of effort, descriptions and the native file format.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.graph.graph import Arrays, FloatArray, IntArray, Kind

if TYPE_CHECKING:
    from tightmap.factors.block import Block
    from tightmap.factors.piece import Piece

# what reads an array of a file: its name, the kinds of number it may have ("f", "iu"), its number of axes
Get = Callable[[str, str, int], npt.NDArray[Any]]


class Kernels(NamedTuple):
    """Compiled functions of a factor f of the Arrays g (``kernels.py`` says what they mean); all costs are weighted."""

    value: Any  # (g, f, labels)
    add_slice: Any  # (g, f, pos, labels, out, scale)
    contract: Any  # (g, f, pos, x, start, out, work)
    minmarg: Any  # (g, f, pos, h, start, out, work)
    tabulate: Any  # (g, f, size, table)
    spread: Any  # (g, f)
    change: Any = None  # (g, f, pos, labels, cost, now, s); by default two slices for every other variable


class FactorKind:
    """One kind.  The defaults are those of a kind whose parameters are the costs themselves."""

    kind: ClassVar[Kind]
    block: ClassVar[type[Block]]
    words: ClassVar[str]  # "truncated linear": what descriptions call its tables
    kernels: ClassVar[Kernels | None]  # for any number of variables; None where there are only pairs of it
    pair_kernels: ClassVar[Kernels | None] = None  # for pairs; models of pairs compile no others
    has_parameters: ClassVar[bool] = True  # that may differ from factor to factor; False: all its tables are one
    ascending: ClassVar[bool] = True  # whether canonical scopes ascend; False: they are in the order of roles
    metric: ClassVar[bool] = False  # a metric over labels, whatever its parameters are, if its weight is not negative

    @property
    def name(self) -> str:
        """What files call it."""
        return self.kind.name

    def extent(self, piece: Piece) -> tuple[FloatArray, FloatArray]:
        """(t,) two numbers per parameter vector between which, inclusive, all finite costs lie, weights left out."""
        finite = np.isfinite(piece.tables)
        none = ~finite.any(axis=1)
        least = np.where(finite, piece.tables, np.inf).min(axis=1)
        most = np.where(finite, piece.tables, -np.inf).max(axis=1)
        least[none] = most[none] = 0.0
        return least, most

    def multiples(self, piece: Piece) -> FloatArray | None:
        """Numbers whose common divisors divide every finite cost, weights left out; None where there are none."""
        return piece.tables.reshape(-1)

    def dense(self, piece: Piece, rows: IntArray, shape: tuple[int, ...], offset: IntArray) -> FloatArray:
        """(len(rows), *shape) tables of some rows of a piece, all with these label counts."""
        raise NotImplementedError

    def scratch(self, g: Arrays, factors: npt.NDArray[Any], arity: int, labels: int) -> int:
        """Numbers of scratch space that its kernels need for factors of at most so many variables and labels."""
        return 3 * (labels + 2)

    def seconds(self, sizes: Sizes, rows: npt.NDArray[Any], contraction: bool) -> FloatArray:
        """About how long one contraction or one min-marginal of some factors takes on a present-day core."""
        return 2e-9 * sizes.arity[rows] * sizes.labels[rows]

    def read(self, model: Any, scopes: npt.NDArray[Any], weights: npt.NDArray[Any], get: Get) -> None:
        """Add the factors of a file to a model, by the call that checks them."""
        raise NotImplementedError


class Sizes(NamedTuple):
    """Sizes of all factors of a graph, to estimate effort by."""

    g: Any  # Arrays
    entries: FloatArray  # (m,) labellings
    arity: FloatArray  # (m,)
    labels: FloatArray  # (m,) largest label count
