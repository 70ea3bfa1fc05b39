"""Variables that follow from another one are merged into it.

A function c_ij whose hard part leaves every label a of i at most one partner f(a), as an equality, a permutation or a
fixed distance between two frequencies does, makes x_j = f(x_i) in every labelling that matters.  So j can go:

    c_A(x_A)  becomes  c_A with x_j replaced by f(x_i),      labels a without a partner cost ``top``.

No function gets more variables, those of (i, k) and (j, k) are added up, and soft arc consistency sees at once what it
would otherwise have to send through c_ij.  A pair (a, b) does not matter where c_i(a) + c_ij(a, b) + c_j(b) and the
constant alone reach the upper bound.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tightmap.moves.context import Context
from tightmap.solvers.exact.network import Choice, Network, Table

GROWTH = 1.0  # the tables of a variable that is merged may become so many times as large in all


def merge_functional(net: Network, context: Context | None = None) -> int:
    """Merge all variables that follow from another one, or as many as the time limit allows; returns how many."""
    waiting = _candidates(net)
    changed: set[int] = set()  # variables that others were merged into: their functions are looked at again
    merged = 0
    while waiting and (context is None or context.remaining() > 0.0):
        scope = waiting.pop()
        found = _partner(net, scope) if scope in net.functions else None
        if found is not None:
            stays, goes, partner = found
            _merge(net, stays, goes, partner)
            merged += 1
            changed.add(stays)
        if not waiting:  # all together: the middle of a star changes with each of its leaves
            waiting = {s for i in changed for s in net.touching[i] if len(s) == 2}
            changed.clear()
    return merged


def _candidates(net: Network) -> set[tuple[int, ...]]:
    """Functions of two variables with so few pairs that matter that one may be a function of the other."""
    scopes = [s for s in net.functions if len(s) == 2]
    if not scopes:
        return set()
    tables = [net.functions[s].reshape(-1) for s in scopes]
    start = np.concatenate(([0], np.cumsum([len(t) for t in tables])))[:-1]
    counts = np.add.reduceat(np.concatenate(tables) < net.upper - net.constant, start, dtype=np.int64)
    most = [max(net.cards[i], net.cards[j]) for i, j in scopes]
    return {s for s, few in zip(scopes, (counts <= most).tolist(), strict=True) if few}


def _partner(net: Network, scope: tuple[int, ...]) -> tuple[int, int, npt.NDArray[np.int64]] | None:
    """Which variable stays, which goes, and the label of the latter for every label of the former, -1 for none."""
    i, j = scope
    matters = net.functions[scope] + net.unary[i][:, None] + net.unary[j] < net.upper - net.constant
    ways = [(i, j, matters), (j, i, matters.T)]
    # the one with fewer labels stays, or else the one with more functions: fewer have to be moved
    if (net.cards[j], -len(net.touching[j])) < (net.cards[i], -len(net.touching[i])):
        ways.reverse()
    for stays, goes, mine in ways:
        if (mine.sum(axis=1) <= 1).all() and _affordable(net, stays, goes):
            return stays, goes, np.where(mine.any(axis=1), mine.argmax(axis=1), -1)
    return None


def _affordable(net: Network, stays: int, goes: int) -> bool:
    before = sum(net.functions[s].size for s in net.touching[goes])
    factor = net.cards[stays] / net.cards[goes]
    after = sum(net.functions[s].size * (1.0 / net.cards[goes] if stays in s else factor) for s in net.touching[goes])
    return after <= GROWTH * before


def _merge(net: Network, stays: int, goes: int, partner: npt.NDArray[np.int64]) -> None:
    """Replace x_goes by partner[x_stays] everywhere."""
    label = np.maximum(partner, 0)
    moved: list[tuple[tuple[int, ...], Table]] = [((stays,), np.where(partner < 0, net.top, net.unary[goes][label]))]
    for scope in sorted(net.touching[goes]):
        table = net.functions.pop(scope)
        for k in scope:
            net.touching[k].discard(scope)
        axis = scope.index(goes)
        table = np.take(table, label, axis=axis)
        if stays in scope:
            rest = [k for k in scope if k not in (stays, goes)] + [stays]  # the diagonal is the last axis
            table = np.diagonal(table, axis1=scope.index(stays), axis2=axis)
        else:
            rest = [stays if k == goes else k for k in scope]
        order = sorted(range(len(rest)), key=lambda p: rest[p])
        moved.append((tuple(sorted(rest)), np.ascontiguousarray(table.transpose(order))))
    net.gone.add(goes)
    net.choices.append(Choice(goes, (stays,), label.astype(np.int32), False))
    for scope, table in moved:
        net.add(scope, table)
