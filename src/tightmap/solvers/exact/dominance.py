"""Labels that another label of the same variable can stand for at no greater cost (dead-end elimination).

    a is dominated by b   if   c_i(b) - c_i(a) + sum_A max over x_A of [c_A(b, x_A) - c_A(a, x_A)]  <=  0

(Desmet et al. 1992, Goldstein 1994), over the labels that are left of the other variables.  Then a can go: wherever it
stands, b costs no more.  Costs that are cut to ``top`` do no harm: a labelling of interest has none of them, and with b
in the place of a it costs no more, so it still has none.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from itertools import chain

import numpy as np
import numpy.typing as npt

from tightmap.moves.context import Context
from tightmap.runtime.compiled import compiled
from tightmap.runtime.pace import check_time
from tightmap.solvers.exact.network import Network

WORK = 1 << 27  # entries that are compared, about a tenth of a second
OWN = 1000  # as many entries take as long as what a variable costs besides


@compiled
def _rows(own, scope_of, first, stands, digits, place, rows):
    """Write the entries of a function at label 0 of its variable number ``own``; (how many, from label to label).

    ``place`` is where the function begins.  An odometer runs over the labels of the other variables, and counts those
    that are gone.
    """
    order, size, width, gone, at, number = len(scope_of), 1, 1, 0, place, 0
    for k in range(order - 1, -1, -1):
        digits[k] = 0
        card = first[scope_of[k] + 1] - first[scope_of[k]]
        if k == own:
            width = size
        else:
            gone += stands[first[scope_of[k]]] != 0
        size *= card
    while True:
        if gone == 0:
            rows[number] = at
            number += 1
        stride, k = 1, order - 1
        while k >= 0:
            begin = first[scope_of[k]]
            card = first[scope_of[k] + 1] - begin
            if k != own:
                gone -= stands[begin + digits[k]] != digits[k]
                digits[k] += 1
                at += stride
                if digits[k] < card:
                    gone += stands[begin + digits[k]] != digits[k]
                    break
                digits[k] = 0
                at -= stride * card
                gone += stands[begin] != 0
            stride *= card
            k -= 1
        if k < 0:
            return number, width


@compiled
def _compare(i, first, stands, unary, functions, touching, room):
    """Let labels of variable i go that others can stand for; the number of those.

    ``first[j]`` is the place of the labels of variable j in ``stands`` and ``unary``; a label is left while it stands
    for itself.
    """
    costs, place, scope_start, scope = functions
    more, rows, digits, table = room  # more[a, b]: what b costs instead of a; table: rows of one function by labels
    begin, cards = first[i], first[i + 1] - first[i]
    for a in range(cards):
        for b in range(cards):
            more[a, b] = unary[begin + b] - unary[begin + a]
    for at in range(touching[0][i], touching[0][i + 1]):
        f = touching[1][at]
        scope_of = scope[scope_start[f] : scope_start[f + 1]]
        own = 0
        while scope_of[own] != i:
            own += 1
        number, width = _rows(own, scope_of, first, stands, digits, place[f], rows)
        for a in range(cards):
            for r in range(number):
                table[a * number + r] = costs[rows[r] + a * width]
        for a in range(cards):
            if stands[begin + a] != a:
                continue
            for b in range(cards):
                if b != a and stands[begin + b] == b:
                    largest = table[b * number] - table[a * number]
                    for r in range(1, number):
                        largest = max(largest, table[b * number + r] - table[a * number + r])
                    more[a, b] += largest
    gone = 0
    for a in range(cards):
        if stands[begin + a] != a:
            continue
        for b in range(cards):
            if b != a and stands[begin + b] == b and more[a, b] <= 0:
                for c in range(cards):
                    if stands[begin + c] == a:
                        stands[begin + c] = b
                gone += 1
                break
    return gone


def dominated_labels(net: Network, context: Context | None = None) -> list[npt.NDArray[np.int64]]:
    """For every variable and label of the network the label that stands for it: itself, if it is not dominated."""
    cards = np.array(net.cards, np.int64)
    first = np.concatenate(([0], np.cumsum(cards)))
    stands = np.arange(first[-1]) - np.repeat(first[:-1], cards)
    scopes = list(net.functions)
    sizes = np.array([table.size for table in net.functions.values()], np.int64)
    lengths = np.array([len(scope) for scope in scopes], np.int64)
    scope = np.fromiter(chain.from_iterable(scopes), np.int64, int(lengths.sum()))
    owner = np.repeat(np.arange(len(scopes)), lengths)
    touching = (
        np.concatenate(([0], np.cumsum(np.bincount(scope, minlength=len(cards))))),
        owner[np.argsort(scope, kind="stable")],
    )
    rows_of = np.bincount(scope, weights=(sizes[owner] / cards[scope]), minlength=len(cards))
    none = np.zeros(0, np.int64)
    functions = (
        np.concatenate([none, *[table.reshape(-1) for table in net.functions.values()]]),
        np.concatenate(([0], np.cumsum(sizes))),
        np.concatenate(([0], np.cumsum(lengths))),
        scope,
    )
    unary = np.concatenate([none, *net.unary])
    left = cards.copy()
    most = int(cards.max(initial=1))
    largest, order = int(sizes.max(initial=1)), int(lengths.max(initial=1))
    room = np.empty((most, most), np.int64), *(np.empty(size, np.int64) for size in (largest, order, largest))
    queue = [i for i in np.argsort(cards**2 * rows_of, kind="stable").tolist() if i not in net.gone and cards[i] > 1]
    waiting, budget = set(queue), float(WORK)
    for i in queue:  # grows
        waiting.discard(i)
        budget -= OWN + left[i] ** 2 * rows_of[i]
        if budget < 0.0:
            break
        check_time(context)
        gone = _compare(i, first, stands, unary, functions, touching, room)
        if gone:
            left[i] -= gone
            fresh = net.neighbours(i) - waiting
            queue.extend(sorted(fresh))
            waiting |= fresh
    return [own.copy() for own in np.split(stands, first[1:-1])]
