"""The table of all kinds of factor: a new one is a file like those listed here, and one row.

Blocks of kinds from outside the package (``custom.py``) have no row: the canonical form turns them into one of these.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tightmap.factors import dense, difference, pattern, pn_potts, potts, second_difference, sparse
from tightmap.factors.kind import FactorKind
from tightmap.graph.graph import Kind

# in the order in which kernels ask for them: the most frequent first
KINDS: tuple[FactorKind, ...] = (
    potts.KIND,
    dense.KIND,
    difference.LINEAR_KIND,
    difference.QUADRATIC_KIND,
    pn_potts.KIND,
    sparse.KIND,
    pattern.KIND,
    second_difference.KIND,
)

_BY_NUMBER: dict[int, FactorKind] = {int(row.kind): row for row in KINDS}
_BY_NAME: dict[str, FactorKind] = {row.block.name: row for row in KINDS}

METRIC = tuple(int(row.kind) for row in KINDS if row.metric)
PAIRS = tuple(int(row.kind) for row in KINDS if row.pair_kernels is not None)  # those that models of pairs may have


def row_of(kind: int) -> FactorKind:
    """The row of a kind, by its number in the canonical form."""
    return _BY_NUMBER[int(kind)]


def row_named(name: str) -> FactorKind | None:
    """The row of a kind, by the name that files give it."""
    return _BY_NAME.get(name)


def rows_by_kind(kinds: npt.NDArray[np.uint8]) -> list[tuple[FactorKind, npt.NDArray[np.intp]]]:
    """Every kind that occurs in a graph, with its factors."""
    return [(row_of(kind), np.flatnonzero(kinds == kind)) for kind in np.flatnonzero(np.bincount(kinds)).tolist()]


assert set(_BY_NUMBER) == {int(kind) for kind in Kind}
