"""Tables of all factors, of every kind.

Messages between factors of more than one variable are min-marginals of reparametrised tables.  Such a table exists only
for as long as it takes to send one message (``kernels.tabulate``); only the exact search keeps the tables of all.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tightmap.factors.kernels import tabulate
from tightmap.graph.graph import Graph
from tightmap.runtime.compiled import compiled


@compiled
def _tabulate_all(g, begin, flat):
    for f in range(len(g.kind)):
        tabulate(g, f, flat[begin[f] :])  # what it needs beyond the table is the place of the next one


def all_tables(graph: Graph) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Every factor as a table: that of factor f is flat[begin[f]:begin[f + 1]]."""
    g = graph.arrays
    begin = np.zeros(graph.m + 1, np.int64)
    if graph.m == 0:
        return np.zeros(0), begin
    np.cumsum(np.multiply.reduceat(g.cards[g.scope].astype(np.int64), g.scope_start[:-1]), out=begin[1:])
    flat = np.empty(int(begin[-1]) + graph.order)
    _tabulate_all(g, begin, flat)
    return flat[: begin[-1]], begin
