"""Max-cut graphs in the format of rudy, Gset and .mc files: ``n m``, then m lines ``i j w`` with vertices from 1.

The cut is to be maximised, so an edge costs -w when its ends differ: the energy is minus the weight of the cut.
"""

from __future__ import annotations

import numpy as np

from tightmap.errors import ModelError, OptionError
from tightmap.graph.graph import FloatArray, IntArray
from tightmap.io.source import Source, check_total
from tightmap.io.tokens import Tokens
from tightmap.model.model import Model


def read_edges(tokens: Tokens, n: int, rows: int, base: int) -> tuple[IntArray, FloatArray]:
    """``rows`` triples ``i j w``: edges from 0, and weights."""
    start = tokens.at
    cells = tokens.numbers(3 * rows, "an entry 'i j weight'").reshape(rows, 3)
    ends = cells[:, :2]
    good = (ends >= base) & (ends < n + base) & (np.floor(ends) == ends)
    if not good.all():
        row, side = (int(i) for i in np.argwhere(~good)[0])
        tokens.fail(start + 3 * row + side, f"an index in {base}..{n + base - 1}")
    if not np.isfinite(cells[:, 2]).all():
        tokens.fail(start + 3 * int(np.argmin(np.isfinite(cells[:, 2]))) + 2, "a finite weight")
    return ends.astype(np.int64) - base, cells[:, 2].copy()


def read_maxcut(source: Source, *, base: int = 1) -> Model:
    """Read a graph; ``base`` is the number of the first vertex (files with the word MAX-CUT may count from 0)."""
    if base not in (0, 1):
        raise OptionError(f"option base: expected 0 or 1, got {base!r}")
    words = 1 if source.data.lstrip()[:7].upper() == b"MAX-CUT" else 0
    tokens = Tokens(source.data, words=words, comment=b"#")
    tokens.at = words
    n = tokens.integer("the number of vertices", high=2**31 - 1)
    m = tokens.count("the number of edges", each=3)
    check_total(n, 2.0 * n, "the number of vertices", len(source.data))
    edges, weights = read_edges(tokens, n, m, base)
    tokens.end()
    if (edges[:, 0] == edges[:, 1]).any():
        loop = int(np.argmax(edges[:, 0] == edges[:, 1]))
        raise ModelError(f"edge {loop} joins vertex {int(edges[loop, 0]) + base} to itself")
    model = Model(np.full(n, 2, dtype=np.int64))
    model.add_potts(edges, -weights)
    return model
