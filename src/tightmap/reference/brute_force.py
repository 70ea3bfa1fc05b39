"""All labellings: the minimum of e(s) over S_1 x .. x S_n, (4), by trying them."""

from __future__ import annotations

import numpy as np

from tightmap.errors import ModelError
from tightmap.model.model import Model
from tightmap.reference.dense import tables
from tightmap.reference.model import Outcome, Tables

LIMIT = 1 << 22  # labellings whose energies are kept at once


def brute_force(model: Model | Tables) -> Outcome:
    """The first labelling, in lexicographic order, of the smallest energy; +inf when every labelling is forbidden."""
    t = tables(model)
    cards = np.diff(t.offset)
    count = float(np.prod(cards.astype(np.float64)))
    if count > LIMIT:
        raise ModelError(f"brute force: {count:.3g} labellings, at most {LIMIT} can be tried")
    number = np.arange(int(count))  # labellings are numbered with the last variable running fastest
    stride = np.concatenate((np.cumprod(cards[::-1])[::-1], [1]))[1:]

    energies = np.full(len(number), t.constant)
    for i, row in enumerate(t.rows):
        energies += t.unary[row][number // stride[i] % cards[i]]
    for scopes, costs, _ in t.groups:
        for scope, table in zip(scopes, costs, strict=True):
            energies += table[tuple(number // stride[i] % cards[i] for i in scope)]

    best = int(np.argmin(energies))
    return Outcome(best // stride % cards, float(energies[best]), [])
