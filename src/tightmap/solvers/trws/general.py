"""TRW-S sweeps on any pairwise model: any graph, any kinds of factor, ragged label counts, any order of the nodes.

One float64 message per edge (Kolmogorov 2006): the slot of an edge holds the message to its later end after a
forward pass and to its earlier end after a backward pass.  At node i

    total = theta_i + sum of its slots,    h = gamma_i total - slot,    slot <- min_t [h(t) + theta_ij(t, .)] - delta,

for the edges to later nodes (forward) or to earlier ones (backward).  After a backward pass the reparametrisation
that moves ``slot`` from every edge to its earlier end and -h to its later end has the bound (grid_bound.py)

    sum over edges of delta + sum_i (1 - gamma_i earlier_i) min total_i,

so that every pass certifies itself.  ``size`` adds up what rounding can amount to: sums of d terms of absolute value
at most a are wrong by at most d a units, and a message goes through at most 2 labels + 8 more operations.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.energy.energies import message_offsets
from tightmap.factors.difference import difference_minmarg
from tightmap.factors.kernels import add_slice, load_unary, minmarg, most_labels, workspace
from tightmap.factors.pairs import (
    LAST_PLAIN,
    LAST_TABLE,
    QUADRATIC,
    add_plain_row,
    add_to,
    lowest,
    table_message,
)
from tightmap.graph.graph import FloatArray, Graph, IntArray, PairArrays
from tightmap.runtime.compiled import compiled
from tightmap.runtime.pace import EVER, LOOK, TimeUp, end_of, late
from tightmap.runtime.simd import LANES, get, keep, pointer, put
from tightmap.runtime.sync import Crew, publish, wait_for
from tightmap.solvers.trws.ahead import DISTANCE, SCATTERED, ask_for_edges, ask_for_messages
from tightmap.solvers.trws.four_labels import round_four, visit_four
from tightmap.solvers.trws.layout import CHUNK, lay_out
from tightmap.solvers.trws.streams import Streams
from tightmap.solvers.trws.tables import narrow_sweep, wide_sweep


class Sweeper(NamedTuple):
    """The order of the nodes and everything that depends on it, and the messages."""

    order: npt.NDArray[np.int64]  # (n,) nodes in the order of the forward pass
    later: npt.NDArray[np.uint8]  # per entry of adj_factor: the other end comes later
    gamma: FloatArray  # (n,)
    earlier: npt.NDArray[np.int64]  # (n,) number of earlier neighbours
    start: IntArray  # (m,) slot of edge f is messages[start[f]:], as long as its larger end; in the order of visits
    messages: FloatArray
    four: npt.NDArray[np.uint8]  # (n,) visited by four_labels.py
    scratch: int
    block: int  # chunks of nodes per block; neighbours are in the same block or in the next one
    need: npt.NDArray[np.int64]  # [backward, forward][chunk]: chunks of the block before that have to be done
    ahead: int  # visits that memory is asked for in advance (ahead.py); 0 where neighbours are close together


def build_sweeper(graph: Graph, order: npt.NDArray[np.int64], name: str = "", room: int = 1) -> Sweeper:
    """With messages of zeros, which begin at multiples of ``room``; ``name`` of an order that the graph decides."""

    def make() -> tuple[Sweeper, int]:
        return _lay_out(graph, order, room)

    empty, entries = graph.kept(f"sweeper, {name}, {room}", make) if name else make()
    return empty._replace(messages=np.zeros(entries))


def _lay_out(graph: Graph, order: npt.NDArray[np.int64], room: int) -> tuple[Sweeper, int]:
    """All but the messages, and how many numbers they are."""
    g, n = graph.arrays, graph.n
    order = np.ascontiguousarray(order, dtype=np.int64)
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n)
    later, four = np.zeros(len(g.adj_factor), np.uint8), np.zeros(n, np.uint8)
    gamma, before, start = np.zeros(n), np.zeros(n, np.int64), np.zeros(graph.m, np.int64)
    need = np.zeros((2, -(-n // CHUNK)), np.int64)
    block, entries, apart = lay_out(g, order, rank, room, later, gamma, before, start, four, need)
    bytes_apart = 8.0 * entries * apart / (graph.m * n) if graph.m else 0.0  # of messages between the ends of an edge
    ahead = DISTANCE if bytes_apart > SCATTERED else 0
    empty = np.zeros(0)
    return Sweeper(order, later, gamma, before, start, empty, four, workspace(g), block, need, ahead), int(entries)


def _make(EXOTIC: bool) -> Any:
    """The pass for Potts, dense, linear and quadratic factors, or with the kernels of every other kind as well.

    Compiling those takes longer than solving most models, and few pairwise models need them.
    """

    @compiled
    def half_sweep(g, sweeper, towards, labels, rounding, sums, left, thread, threads, progress):
        """One thread's share of a pass, forward (towards = 1) or backward (0); sums [chunk] get energy, bound and size.

        With rounding, a node first takes its best label given the neighbours labelled before it and the messages of the
        others.  Arrays are read through pointers: see simd.pointer.  When time is up, what is left to do is passed over
        and the sums say so: the energy is infinite.
        """
        until = end_of(left)
        spent = 0.0
        hurried = False
        # scratch vectors as arrays, for the kernels that take arrays, and as pointers
        widest = max(most_labels(g.cards), LANES)
        h_array, out_array, work = np.empty(widest), np.empty(widest), np.empty(sweeper.scratch)
        total_array, zeros = np.empty(widest), np.zeros(2, np.int64)
        total, h, out = pointer(total_array), pointer(h_array), pointer(out_array)
        messages, unary, params = pointer(sweeper.messages), pointer(g.unary), pointer(g.params)
        cards, offset, adj_start = pointer(g.cards), pointer(g.offset), pointer(g.adj_start)
        adj_factor, adj_pos, later = pointer(g.adj_factor), pointer(g.adj_pos), pointer(sweeper.later)
        kinds, scope, weight, param = pointer(g.kind), pointer(g.scope), pointer(g.weight), pointer(g.param)
        start, order, x = pointer(sweeper.start), pointer(sweeper.order), pointer(labels)
        gammas, earliers, four = pointer(sweeper.gamma), pointer(sweeper.earlier), pointer(sweeper.four)
        edges = (messages, start, adj_factor, later, weight)
        n = len(sweeper.order)
        need, ahead = pointer(sweeper.need[towards]), sweeper.ahead
        chunks = (n + CHUNK - 1) // CHUNK
        for chunk in range(thread * sweeper.block, chunks):
            b = chunk // sweeper.block
            if b % threads != thread:
                continue
            if threads > 1 and get(need, chunk) > 0 and not wait_for(progress, 8 * (b - 1), get(need, chunk)):
                return
            energy = 0.0
            bound = 0.0
            size = 0.0
            for k in range(chunk * CHUNK, min(n, (chunk + 1) * CHUNK)):
                i = get(order, k if towards == 1 else n - 1 - k)
                if ahead > 0:
                    if k + 2 * ahead < n:
                        j = get(order, k + 2 * ahead if towards == 1 else n - 1 - k - 2 * ahead)
                        ask_for_edges(j, get(four, j), adj_start, adj_factor, start, weight, param, scope)
                    if k + ahead < n:
                        j = get(order, k + ahead if towards == 1 else n - 1 - k - ahead)
                        ask_for_messages(
                            j, get(four, j), np.int64(get(cards, j)), towards, adj_start, adj_factor, later, start,
                            param, kinds, messages, params,
                        )  # fmt: skip
                c = np.int64(get(cards, i))
                o = get(offset, i)
                begin, end = get(adj_start, i), get(adj_start, i + 1)
                if spent > LOOK:
                    spent = 0.0
                    hurried = hurried or late(until)
                if hurried:
                    energy = np.inf
                    break
                if get(four, i):
                    spent += 20.0 * (end - begin)
                    if rounding:
                        best, paid = round_four(unary, o, edges, scope, adj_pos, x, begin, end, towards)
                        put(x, i, best)
                        energy += paid
                    gamma, earlier = get(gammas, i), get(earliers, i)
                    bound, size = visit_four(unary, o, edges, begin, end, towards, gamma, earlier, bound, size)
                    continue
                if rounding:
                    for s in range(c):
                        put(out, s, get(unary, o + s))
                        put(h, s, 0.0)
                    for a in range(begin, end):
                        f = np.int64(get(adj_factor, a))
                        if get(later, a) == towards:
                            add_to(h, messages, get(start, f), c)
                        else:
                            kind, p = get(kinds, f), np.int64(get(adj_pos, a))
                            if not EXOTIC or kind <= LAST_PLAIN:
                                j = get(scope, 2 * f + 1 - p)
                                w, d = get(weight, f), np.int64(get(cards, j))
                                add_plain_row(kind, p, params, get(param, f), w, get(x, j), c, d, out)
                            else:
                                add_slice(g, int(g.adj_factor[a]), int(g.adj_pos[a]), labels, out_array, 1.0)
                    best = 0
                    low = np.inf
                    for s in range(c):
                        v = get(h, s) + get(out, s)
                        if v < low:
                            low = v
                            best = s
                    put(x, i, best)
                    energy += get(out, best)
                largest = 0.0
                for s in range(c):
                    u = get(unary, o + s)
                    put(total, s, u)
                    u = abs(u)
                    largest = u if u > largest else largest
                for a in range(begin, end):
                    largest += add_to(total, messages, get(start, get(adj_factor, a)), c)
                gamma = get(gammas, i)
                if towards == 0:
                    low = lowest(total, c)
                    earlier = get(earliers, i)
                    if earlier * gamma != 1.0:  # the part of the sum that stays at the node
                        bound += (1.0 - gamma * earlier) * low
                    size += 4.0 * (end - begin + 2) * largest + abs(low)
                for a in range(begin, end):
                    if get(later, a) != towards:
                        continue
                    f = np.int64(get(adj_factor, a))
                    p = np.int64(get(adj_pos, a))
                    kind = get(kinds, f)
                    base = get(start, f)
                    d = np.int64(get(cards, get(scope, 2 * f + 1 - p)))
                    spent += 20.0 + c * d
                    for s in range(c):
                        put(h, s, gamma * get(total, s) - get(messages, base + s))
                    if kind <= LAST_TABLE:
                        table_message(kind, p, params, get(param, f), get(weight, f), h, c, d, out)
                    elif not EXOTIC or kind <= LAST_PLAIN:
                        w, limit = get(weight, f), get(params, get(param, f))
                        difference_minmarg(d, c, w, kind == QUADRATIC, limit, h_array, 0, out_array, work)
                    else:
                        minmarg(g, f, 1 - p, h_array, zeros, out_array, work)
                    delta = lowest(out, d)
                    peak = 0.0
                    for t in range(d):
                        v = get(out, t) - delta
                        put(messages, base + t, v)
                        peak = v if v > peak else peak
                    bound += delta
                    size += (8.0 + 2.0 * c) * (2.0 * largest + abs(delta) + peak)
            sums[chunk, 0] = energy
            sums[chunk, 1] = bound
            sums[chunk, 2] = size
            if threads > 1:
                publish(progress, 8 * b, chunk % sweeper.block + 1)
        keep(total_array)
        keep(h_array)
        keep(out_array)

    return half_sweep


_plain, _exotic = _make(False), _make(True)


def half_sweep(
    graph: Graph,
    sweeper: Sweeper,
    streams: Streams | None,
    crew: Crew,
    forward: bool,
    labels: npt.NDArray[np.int64],
    rounding: bool,
    left: float = EVER,
) -> tuple[float, float, float]:
    """One pass, by tables.py where there are ``streams``.

    Returns the energy of the labels chosen, the bound and the size (all without the constant).

    TimeUp after so many seconds; some messages are then of this pass, the others of the one before.
    """
    costs: Any = graph.arrays
    if streams is not None:
        kernel, costs = (narrow_sweep if graph.max_labels <= LANES else wide_sweep), streams
    elif isinstance(graph.arrays, PairArrays) or graph.arrays.kind.max(initial=0) <= LAST_PLAIN:
        kernel = _plain
    else:
        kernel = _exotic
    sums = np.zeros((sweeper.need.shape[1], 3))
    crew.run(kernel, blocks(sweeper), costs, sweeper, int(forward), labels, rounding, sums, left)
    columns = sums.T.tolist()
    if any(map(math.isinf, columns[0])):
        raise TimeUp
    energy, bound, size = map(math.fsum, columns)
    return energy, bound, size


def blocks(sweeper: Sweeper) -> int:
    """How many blocks there are: threads in excess of half of them would only wait."""
    return -(-sweeper.need.shape[1] // sweeper.block)


@compiled
def _expand(g, sweeper, offsets, out):
    """A forward pass that also writes down the reparametrisation it ends with, in the layout of the certificate."""
    messages = sweeper.messages
    widest = most_labels(g.cards)
    total = np.empty(widest)
    h = np.empty(widest)
    m = np.empty(widest)
    work = np.empty(sweeper.scratch)
    at = np.zeros(2, np.int64)
    for i in sweeper.order:
        c = g.cards[i]
        load_unary(g, i, total)
        for a in range(g.adj_start[i], g.adj_start[i + 1]):
            base = sweeper.start[g.adj_factor[a]]
            for s in range(c):
                total[s] += messages[base + s]
        for a in range(g.adj_start[i], g.adj_start[i + 1]):
            if sweeper.later[a] == 1:
                f = int(g.adj_factor[a])
                p = int(g.adj_pos[a])
                base = sweeper.start[f]
                own, theirs = offsets[2 * f + p], offsets[2 * f + 1 - p]
                for s in range(c):
                    h[s] = sweeper.gamma[i] * total[s] - messages[base + s]
                    out[own + s] = -h[s]
                minmarg(g, f, 1 - p, h, at, m, work)
                d = g.cards[g.scope[g.scope_start[f] + 1 - p]]
                delta = m[0]
                for t in range(1, d):
                    delta = min(delta, m[t])
                for t in range(d):
                    messages[base + t] = m[t] - delta
                    out[theirs + t] = m[t] - delta


def expanded_messages(graph: Graph, sweeper: Sweeper) -> FloatArray:
    """Messages of both ends of every edge (energies.message_offsets) after a backward pass; the slots stay."""
    offsets = message_offsets(graph)
    out = np.zeros(int(offsets[-1]))
    _expand(graph.arrays, sweeper._replace(messages=sweeper.messages.copy()), offsets, out)
    return out


@compiled
def _collapse(g, sweeper, offsets, given):
    widest = most_labels(g.cards)
    h = np.empty(widest)
    m = np.empty(widest)
    work = np.empty(sweeper.scratch)
    at = np.zeros(2, np.int64)
    for i in range(len(g.cards)):
        for a in range(g.adj_start[i], g.adj_start[i + 1]):
            if sweeper.later[a] == 1:
                f = int(g.adj_factor[a])
                p = int(g.adj_pos[a])
                d = g.cards[g.scope[g.scope_start[f] + 1 - p]]
                for t in range(d):
                    h[t] = -given[offsets[2 * f + 1 - p] + t]
                minmarg(g, f, p, h, at, m, work)
                low = m[0]
                for s in range(1, g.cards[i]):
                    low = min(low, m[s])
                for s in range(g.cards[i]):
                    sweeper.messages[sweeper.start[f] + s] = m[s] - low


def collapse_messages(graph: Graph, sweeper: Sweeper, given: FloatArray) -> None:
    """Fill the slots from messages of both ends: each edge sends to its earlier end, which cannot lower the bound."""
    _collapse(graph.arrays, sweeper, message_offsets(graph), given)
