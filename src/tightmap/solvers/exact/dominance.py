"""Labels that another label of the same variable can stand for at no greater cost (dead-end elimination).

    a is dominated by b   if   c_i(b) - c_i(a) + sum_A max over x_A of [c_A(b, x_A) - c_A(a, x_A)]  <=  0

(Desmet et al. 1992, Goldstein 1994), over the labels that are left of the other variables.  Then a can go: wherever it
stands, b costs no more.  Costs that are cut to ``top`` do no harm: a labelling of interest has none of them, and with b
in the place of a it costs no more, so it still has none.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tightmap.moves.context import Context
from tightmap.runtime.compiled import compiled
from tightmap.runtime.pace import check_time
from tightmap.solvers.exact.network import Network

WORK = 1 << 26  # entries that are compared, about a tenth of a second ...
MORE = 1 << 18  # ... and so many more for every label that goes


@compiled
def _add_differences(table, more):
    """more[a, b] += largest difference of rows b and a of a table."""
    for a in range(len(table)):
        for b in range(len(table)):
            if a != b:
                largest = table[b, 0] - table[a, 0]
                for x in range(1, table.shape[1]):
                    largest = max(largest, table[b, x] - table[a, x])
                more[a, b] += largest


def dominated_labels(net: Network, context: Context | None = None) -> list[npt.NDArray[np.int64]]:
    """For every variable and label of the network the label that stands for it: itself, if it is not dominated."""
    left = [np.arange(card) for card in net.cards]
    instead = [own.copy() for own in left]
    queue = [i for i in range(len(net.cards)) if i not in net.gone and net.cards[i] > 1]
    queue.sort(key=lambda i: _work(net, left, i))
    waiting, budget = set(queue), WORK
    for i in queue:  # grows
        waiting.discard(i)
        budget -= _work(net, left, i)
        if budget < 0:
            break
        check_time(context)
        own = left[i]
        if len(own) < 2:
            continue
        costs = net.unary[i][own]
        more = costs[None, :] - costs[:, None]
        for scope in net.touching[i]:
            table = np.moveaxis(net.functions[scope][np.ix_(*[left[j] for j in scope])], scope.index(i), 0)
            _add_differences(np.ascontiguousarray(table.reshape(len(own), -1)), more)
        stays = np.ones(len(own), np.bool_)
        for a, b in np.argwhere(more <= 0).tolist():
            if a != b and stays[a] and stays[b]:
                stays[a] = False
                instead[i][instead[i] == own[a]] = own[b]
        if not stays.all():
            budget += MORE * int((~stays).sum())
            left[i] = own[stays]
            fresh = {j for scope in net.touching[i] for j in scope} - waiting - {i}
            queue.extend(sorted(fresh))
            waiting |= fresh
    return instead


def _work(net: Network, left: list[npt.NDArray[np.int64]], i: int) -> int:
    """Entries that are compared for a variable."""
    sizes = (int(np.prod([len(left[j]) for j in scope], dtype=np.int64)) for scope in net.touching[i])
    return 1000 + len(left[i]) * sum(sizes)
