"""Coordinate descent from many labellings, one after the other in one kernel: where a descent takes a microsecond.

    x <- the local minimum that is reached from start k,  k = 1, 2, ...;    best <- x where E(x) < E(best)

Every descent is the one of ``coordinate_descent.descend``, sweep by sweep, with the same labels and energies.  The
kernel stops after so many sweeps or seconds, in the middle of a descent if need be, and goes on there in the next call.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.energy.energies import labelling_sums
from tightmap.factors.kernels import most_labels
from tightmap.moves.coordinate_descent import visit_dirty
from tightmap.runtime.compiled import compiled
from tightmap.runtime.pace import EVER, LOOK, end_of, late


@compiled
def descend_from_each(g, starts, begun, labels, dirty, order, best, least, most, left):
    """Go on from ``labels``, then from starts[begun:]; returns (starts begun, sweeps made, least energy, ended).

    least  energy of ``best``, without the constant
    most   sweeps that may be made; after them, or after ``left`` seconds, it returns before it has ended
    """
    n = len(labels)
    until = end_of(left)
    room = np.empty(most_labels(g.cards))
    work = 0
    sweeps = 0
    while True:
        settled = False
        while not settled:
            if sweeps >= most:
                return begun, sweeps, least, False
            work += 100 * n + 4 * len(g.unary)
            if work > LOOK:
                work = 0
                if late(until):
                    return begun, sweeps, least, False
            changed, _ = visit_dirty(g, labels, dirty, order, 0, n, EVER, room)
            sweeps += 1
            settled = changed == 0
        cost, _ = labelling_sums(g, labels)
        if cost < least:
            least = cost
            for i in range(n):
                best[i] = labels[i]
        if begun == len(starts):
            return begun, sweeps, least, True
        for i in range(n):
            labels[i] = starts[begun, i]
            dirty[i] = np.uint8(1)
        begun += 1
