"""Elimination of variables: whether all of them can go, at what cost, and the elimination itself.

Bucket elimination (Bertele and Brioschi 1972, Dechter 1999): the functions on a variable are added up and minimised
over it, which leaves a function of its neighbours.  What that costs depends on the order alone, and an order is found
by elimination on the graph, without tables:

    least fill    the variable whose neighbours lack the fewest edges among themselves goes next
    least table   the one whose table, over itself and its neighbours, is smallest goes next

The first is the better rule for most graphs, the second for labels of very different number.  Both are tried, and where
that is much work they are tried again with some noise; the order with the fewest table entries in all is taken.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tightmap.graph.graph import Graph
from tightmap.moves.context import Context
from tightmap.runtime.bits import ONE, count_bits, lowest_bit
from tightmap.runtime.compiled import compiled, lean
from tightmap.runtime.pace import LOOK, TimeUp, end_of, late, time_left
from tightmap.solvers.exact.network import Choice, Network

VARIABLES = 8192  # most variables of a graph that an order is looked for: it is kept as a matrix of bits
BLOCK = 512  # entries of a table that are minimised together, so that sums stay in the cache
FILL, TABLE = 0, 1
EASY = 2.0**20  # entries of all tables for which a better order need not be looked for
TURNS = 60  # most orders that are tried
NOISE = 1.0  # in logarithms of a table; the same part of a fill


@dataclass(frozen=True)
class Plan:
    """An order of all variables and what it costs to eliminate them so."""

    order: list[int]
    entries: float  # of all tables, the variable that goes included
    room: float  # entries of the tables (without that variable) that are there at once, at the worst moment


def plan_elimination(
    cards: Sequence[int], variables: Sequence[int], scopes: Iterable[Sequence[int]], largest: float, effort: int
) -> Plan | None:
    """The cheapest order of ``variables`` that is found, with tables of at most 2^largest entries; None: there is none.

    ``effort``: words of the matrix of neighbours looked at after which the search for an order is given up.
    """
    n = len(variables)
    if n > VARIABLES:
        return None
    place = np.full(len(cards), -1, dtype=np.int64)
    place[np.asarray(variables, dtype=np.int64)] = np.arange(n)
    lists = [scope for scope in scopes if len(scope) > 1]
    if any(len(scope) > largest + 1.0 for scope in lists):
        return None
    start = np.concatenate(([0], np.cumsum([len(scope) for scope in lists]))).astype(np.int64)
    flat = place[np.array([i for scope in lists for i in scope], dtype=np.int64)]
    logs = np.log2(np.array([cards[i] for i in variables], dtype=np.float64))
    best: Plan | None = None
    rng = np.random.default_rng(0)
    noise = np.zeros(n)
    for turn in range(TURNS):
        order, cost = np.empty(n, dtype=np.int64), np.zeros(2)
        spent = int(elimination_order(logs, start, flat, turn & 1, noise, largest, effort, order, cost))
        if spent >= 0 and (best is None or cost[0] < best.entries):
            best = Plan([variables[k] for k in order.tolist()], float(cost[0]), float(cost[1]))
        effort -= abs(spent)
        if turn == 0:
            continue
        if best is None or best.entries <= EASY:
            break
        if turn == 1:
            effort = min(effort, int(best.entries / 8.0))  # no more than a better order may save
        if effort <= 0:
            break
        noise = NOISE * rng.random(n)
    return best


def narrow(graph: Graph, largest: float, total: float, effort: int) -> bool:
    """Whether elimination alone solves a model with tables of so many entries (logarithms to base 2)."""
    g = graph.arrays
    if graph.n > VARIABLES or int((np.diff(g.scope_start) ** 2).sum()) > effort:
        return False
    scopes = [part.tolist() for part in np.split(g.scope, g.scope_start[1:-1])] if graph.m else []
    plan = plan_elimination(g.cards.tolist(), range(graph.n), scopes, largest, effort)
    return plan is not None and plan.entries <= 2.0**total


@lean
def _missing(near, v):
    """Twice the number of edges that the neighbours of v lack among themselves."""
    words = near.shape[1]
    degree = np.int64(0)
    common = np.int64(0)
    for w in range(words):
        word = near[v, w]
        degree += count_bits(word)
        while word != 0:
            u = (w << 6) + lowest_bit(word)
            word &= word - ONE
            for k in range(words):
                common += count_bits(near[u, k] & near[v, k])
    return degree * (degree - 1) - common


@compiled
def elimination_order(logs, start, flat, rule, noise, largest, effort, order, cost):
    """Fills ``order`` and ``cost`` (entries of all tables, of those that are there at once).

    Returns the effort; where it has been given up, minus that.
    """
    n = len(logs)
    words = (n + 63) >> 6
    near = np.zeros((n, words), np.uint64)
    for f in range(len(start) - 1):
        for p in range(start[f], start[f + 1]):
            for q in range(start[f], start[f + 1]):
                if p != q:
                    near[flat[p], flat[q] >> 6] |= ONE << np.uint64(flat[q] & 63)
    size = np.empty(n)  # logarithm of the entries of its table; of what is too large no fill is counted
    key = np.zeros(n)  # what is to be small
    stale = np.ones(n, np.bool_)
    position = np.full(n, -1, np.int64)
    entries = np.empty(n)
    spent = 0
    for turn in range(n):
        pick = -1
        for v in range(n):
            if position[v] >= 0:
                continue
            if stale[v]:
                stale[v] = False
                size[v] = logs[v]
                degree = 0
                for w in range(words):
                    word = near[v, w]
                    while word != 0:
                        size[v] += logs[(w << 6) + lowest_bit(word)]
                        word &= word - ONE
                        degree += 1
                spent += words
                key[v] = size[v] + noise[v]
                if rule == FILL and size[v] <= largest:
                    key[v] = _missing(near, v) * (1.0 + noise[v])
                    spent += degree * words
            if size[v] > largest:
                continue
            if pick < 0 or key[v] < key[pick] or (key[v] == key[pick] and size[v] < size[pick]):
                pick = v
        spent += n >> 3
        if pick < 0 or spent > effort:
            return -max(1, spent)
        order[turn] = pick
        position[pick] = turn
        entries[turn] = np.exp2(size[pick])
        cost[0] += entries[turn]
        for w in range(words):
            word = near[pick, w]
            while word != 0:
                u = (w << 6) + lowest_bit(word)
                word &= word - ONE
                stale[u] = True
                for k in range(words):
                    near[u, k] |= near[pick, k]
                near[u, u >> 6] &= ~(ONE << np.uint64(u & 63))
                near[u, pick >> 6] &= ~(ONE << np.uint64(pick & 63))
                spent += 2 * words
                if rule == FILL and key[pick] > 0.0:
                    for k in range(words):
                        other = near[u, k]
                        while other != 0:
                            stale[(k << 6) + lowest_bit(other)] = True
                            other &= other - ONE
    # a table lives until the next of its variables goes
    ends = np.zeros(n + 1)
    alive = 0.0
    for turn in range(n):
        v = order[turn]
        up = n
        for w in range(words):
            word = near[v, w]
            while word != 0:
                up = min(up, position[(w << 6) + lowest_bit(word)])
                word &= word - ONE
        own = entries[turn] / np.exp2(logs[v])
        alive += own
        ends[up] += own
        cost[1] = max(cost[1], alive)
        alive -= ends[turn]
    return spent


# ---------------------------------------------------------------------------------------------------- tables


def eliminate(net: Network, i: int, context: Context | None = None) -> None:
    """Replace variable i and its functions by their minimum over it; TimeUp, and no change, after the time limit."""
    scopes = sorted(net.touching[i])
    around = sorted(net.neighbours(i))
    axes = {j: k for k, j in enumerate([*around, i])}
    shape = [net.cards[j] for j in around]
    card = net.cards[i]
    strides = np.zeros((len(scopes) + 1, len(axes)), dtype=np.int64)
    strides[-1, -1] = 1  # the unary is one more function, without any other variable
    for f, scope in enumerate(scopes):
        step = 1
        for j in reversed(scope):
            strides[f, axes[j]] = step
            step *= net.cards[j]
    tables = [net.functions[scope].reshape(-1) for scope in scopes] + [net.unary[i]]
    start = np.zeros(len(tables), dtype=np.int64)
    np.cumsum([len(table) for table in tables[:-1]], out=start[1:])
    inner, block = len(shape), 1  # the last axes make up a block
    while inner > 0 and (block == 1 or block * shape[inner - 1] <= BLOCK):
        inner -= 1
        block *= shape[inner]
    low = np.empty(math.prod(shape), dtype=np.int64)
    label = np.empty(len(low), dtype=np.int32)
    dims = np.array(shape, dtype=np.int64)
    least = minimise(np.concatenate(tables), start, strides, dims, inner, block, card, low, label, time_left(context))
    if least < 0:
        raise TimeUp
    for scope in scopes:
        del net.functions[scope]
        for j in scope:
            net.touching[j].discard(scope)
    # eight labels of a binary variable to the byte
    kept = np.packbits(label.astype(np.bool_)) if card == 2 else label.astype(np.uint8) if card <= 256 else label
    net.choices.append(Choice(i, tuple(around), kept, card == 2))
    net.gone.add(i)
    net.constant += int(least)
    if settle(low, least, net.top) and around:
        net.put(tuple(around), low.reshape(shape))


@compiled
def minimise(flat, start, strides, dims, inner, block, card, low, label, left):
    """low[b] = min over x of the sum of all functions, label[b] the first best x; returns the least of low.

    Functions lie in ``flat`` from ``start`` on; ``strides`` has a row for each of them, of all variables in ``dims``
    and the one that goes.  Variables from ``inner`` on run through a block of entries.  Returns -1 after ``left``
    seconds.
    """
    count, k = len(start), len(dims)
    offset = np.zeros((count, block), np.int64)  # inside a block
    digit = np.zeros(k, np.int64)
    constant = np.ones(count, np.bool_)  # in a block
    straight = np.ones(count, np.bool_)  # the block is a piece of the function as it lies there
    for f in range(count):
        for p in range(inner, k):
            if strides[f, p] > 0 and dims[p] > 1:
                constant[f] = False
    for b in range(block):
        for f in range(count):
            at = np.int64(0)
            for p in range(inner, k):
                at += strides[f, p] * digit[p]
            offset[f, b] = at
            straight[f] = straight[f] and at == b
        p = k - 1
        while p >= inner:
            digit[p] += 1
            if digit[p] < dims[p]:
                break
            digit[p] = 0
            p -= 1
    base = start.copy()
    total = np.empty(block, np.int64)
    least = np.int64(1) << 62
    at = 0
    until = end_of(left)
    look = 0
    while at < len(low):
        if at * card >= look:
            look += LOOK
            if late(until):
                return np.int64(-1)
        for x in range(card):
            common = np.int64(0)
            for f in range(count):
                if constant[f]:
                    common += flat[base[f] + x * strides[f, k]]
            for b in range(block):
                total[b] = common
            for f in range(count):
                if constant[f]:
                    continue
                origin = base[f] + x * strides[f, k]
                if straight[f]:
                    for b in range(block):
                        total[b] += flat[origin + b]
                else:
                    for b in range(block):
                        total[b] += flat[origin + offset[f, b]]
            if x == 0:
                for b in range(block):
                    low[at + b] = total[b]
                    label[at + b] = 0
            else:
                for b in range(block):
                    if total[b] < low[at + b]:
                        low[at + b] = total[b]
                        label[at + b] = x
        for b in range(block):
            least = min(least, low[at + b])
        at += block
        p = inner - 1
        while p >= 0:
            digit[p] += 1
            for f in range(count):
                base[f] += strides[f, p]
            if digit[p] < dims[p]:
                break
            for f in range(count):
                base[f] -= strides[f, p] * dims[p]
            digit[p] = 0
            p -= 1
    return least


@compiled
def settle(table, least, top):
    """Costs relative to the least one, none above the top; False when none is left."""
    some = False
    for k in range(len(table)):
        v = min(table[k] - least, top)
        table[k] = v
        some = some or v > 0
    return some


def eliminate_low_degrees(net: Network, degree: int, largest: int, context: Context | None = None) -> None:
    """Eliminate variables with at most ``degree`` neighbours while the tables have at most ``largest`` entries.

    TimeUp after the time limit; what is gone then is gone.
    """
    heap = [i for i in range(len(net.cards)) if i not in net.gone]
    waiting = set(heap)
    # d neighbours have at most 2^d - 1 functions with a variable: the middle of a star, which is asked after each of
    # its leaves, has too many for its neighbours to be counted every time
    most = (1 << min(degree, 62)) - 1
    while heap:
        i = heapq.heappop(heap)
        waiting.discard(i)
        if len(net.touching[i]) > most:
            continue
        around = net.neighbours(i)
        if i in net.gone or len(around) > degree or any(len(s) > degree + 1 for s in net.touching[i]):
            continue
        if net.cards[i] * math.prod(net.cards[j] for j in around) > largest:
            continue
        eliminate(net, i, context)
        for j in sorted(around - waiting):
            heapq.heappush(heap, j)
        waiting |= around
