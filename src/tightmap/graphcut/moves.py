"""Expansion moves with duals that are kept: the engine of `expansion` and `fastpd`.

A move on label c lets every variable switch to c or keep its label; the best choice is a minimum cut.  Each edge (u, v)
has a dual y_uv(a) = -y_vu(a) per label, and each variable the heights h_p(a) = theta_p(a) + sum_q y_pq(a).  As long as

    y_uv(x_u) + y_vu(x_v) = theta_uv(x_u, x_v)   on every edge,                                            (invariant)

the energy is the sum of the heights of the current labels.  In the move on c a variable has the terminal capacity
h_p(x_p) - h_p(c) and an edge the residual capacities

    u -> v:  theta(c, x_v) - y_uv(c) - y_vu(x_v)         v -> u:  theta(x_u, c) + y_uv(c) - y_uv(x_u),

which is the cut of an ordinary expansion, reparametrised by the flow that label c left behind the last time.  So flow
is reused: from the second sweep on there is little left to push.  The sum of the two capacities is negative where the
table violates the triangle inequality for (x_u, c, x_v); the edge then gets no arcs and the cost of switching v alone
is overestimated by as much (safe truncation: no move can raise the energy), and the dual is repaired after the move.

Capacities are computed only around nodes that the search reaches, and duals are repaired only where labels changed
since the last move on c.  A move that changes little therefore costs little.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import overload

from tightmap.factors.pairs import POTTS
from tightmap.graphcut.maxflow import ended, pending, plant, push_to_neighbours, run, touch
from tightmap.graphcut.network import arc, degree, edge, head, sister
from tightmap.graphcut.pairwise import Edges, pair
from tightmap.runtime.compiled import compiled, lean


class Move(NamedTuple):
    """What the kernels see of a move: labels, heights and duals, and which capacities have been computed."""

    edges: Edges
    cards: npt.NDArray[np.int32]
    x: npt.NDArray[np.int32]  # (nodes,) labels
    hx: npt.NDArray[Any]  # (nodes,) heights of the current labels
    hc: npt.NDArray[Any]  # (nodes,) heights of label c
    yc: npt.NDArray[Any]  # (edges,) y_uv(c), u the tail
    yu: npt.NDArray[Any]  # (edges,) y_uv(x_u)
    yv: npt.NDArray[Any]  # (edges,) y_vu(x_v)
    touched: npt.NDArray[np.int32]  # (nodes,) number of the move in which the arcs of a node were computed
    order: npt.NDArray[np.int32]  # (nodes,) the nodes touched in this move
    changed: npt.NDArray[np.int32]  # (nodes,) clock when the label of a node last changed
    state: npt.NDArray[np.int64]  # label c, number of the move, nodes touched, truncated arcs, clock


LABEL, NUMBER, TOUCHED, TRUNCATED, CLOCK = 0, 1, 2, 3, 4
EXPAND = 32  # factors whose messages are written together
PART = 256  # variables whose heights are written together


def _is_move(lazy):
    return isinstance(lazy, types.NamedTuple) and lazy.instance_class is Move


def _is_pending(lazy, p):
    return lazy.touched[p] != lazy.state[NUMBER]


def _compute(lazy, net, cap, p):
    # flat arguments: a tuple of arrays passed by value would cost more than the work
    m = lazy.edges
    _compute_arcs(
        net, cap, p, lazy.cards, lazy.x, lazy.yc, lazy.yu, lazy.yv, lazy.touched, lazy.order, lazy.state,
        m.kind, m.weight, m.base, m.stride, m.tables, m.magic,
    )  # fmt: skip


pending.register(Move, _is_pending)
touch.register(Move, _compute)


@overload(pending, inline="always")
def _pending_move(lazy, p):
    return _is_pending if _is_move(lazy) else None


@overload(touch, inline="always")
def _touch_move(lazy, net, cap, p):
    return _compute if _is_move(lazy) else None


@lean
def _compute_arcs(
    net, cap, p, cards, x, yc, yu, yv, touched, order, state, kind, weight, base, stride, tables, magic
):  # fmt: skip
    """Residual capacities of the edges around p that no neighbour has computed yet."""
    now = state[NUMBER]
    c = state[LABEL]
    touched[p] = now
    order[state[TOUCHED]] = p
    state[TOUCHED] += 1
    zero = yc[0] - yc[0]
    for k in range(degree(net, p)):
        q = head(net, p, k)
        if touched[q] == now:
            continue
        there = zero
        back = zero
        if x[q] != c and cards[q] > c:
            e = edge(net, p, k)
            u = min(p, q)
            v = max(p, q)
            there = pair(kind, weight, base, stride, tables, magic, e, c, x[v]) - yc[e] - yv[e]
            back = pair(kind, weight, base, stride, tables, magic, e, x[u], c) + yc[e] - yu[e]
            if there < 0 or back < 0:
                state[TRUNCATED] += there < -magic[1] or back < -magic[1]
                there = max(there, zero)
                back = max(back, zero)
        a = arc(net, p, k)
        b = sister(net, p, k)
        cap[a if p < q else b] = there
        cap[b if p < q else a] = back


@lean
def _compute_all(s, net, cap):
    """Repair and capacities of a first move on label c in one pass: such a move reaches most nodes, and in memory order
    their arcs come many times cheaper than one by one."""
    c = s.state[LABEL]
    now = s.state[NUMBER]
    cards, x, hc, yc, yu, yv, touched, order = s.cards, s.x, s.hc, s.yc, s.yu, s.yv, s.touched, s.order
    m = s.edges
    kind, weight, base, stride, tables, magic = m.kind, m.weight, m.base, m.stride, m.tables, m.magic
    zero = yc[0] - yc[0]
    count = 0
    truncated = 0
    for u in range(len(x)):
        if cards[u] == 0:
            continue
        a = x[u]
        has_u = cards[u] > c
        if has_u and a != c:
            touched[u] = now
            order[count] = u
            count += 1
        for k in range(degree(net, u)):
            v = head(net, u, k)
            if v < u:
                continue
            there = zero
            back = zero
            if cards[v] > 0 and a != c and x[v] != c:
                has_v = cards[v] > c
                e = edge(net, u, k)
                if has_u:
                    there = pair(kind, weight, base, stride, tables, magic, e, c, x[v]) - yc[e] - yv[e]
                if has_v:
                    back = pair(kind, weight, base, stride, tables, magic, e, a, c) + yc[e] - yu[e]
                shift = zero
                if has_u and has_v:
                    if there < 0 or back < 0:
                        shift = there if there < 0 or there + back < 0 else -back
                        there -= shift
                        back += shift
                        if back < 0:
                            truncated += back < -magic[1]
                            back = zero
                elif has_u:  # v cannot follow: the edge is a unary cost of u, and its dual says it exactly
                    shift = there
                    there = zero
                elif has_v:
                    shift = -back
                    back = zero
                if shift != 0:
                    yc[e] += shift
                    if has_u:
                        hc[u] += shift
                    if has_v:
                        hc[v] -= shift
            cap[arc(net, u, k)] = there
            cap[sister(net, u, k)] = back
    s.state[TOUCHED] = count
    s.state[TRUNCATED] += truncated


@lean
def _repair(s, net, since):
    """Shift duals of label c where labels that changed after ``since`` made a capacity negative."""
    c = s.state[LABEL]
    cards, x, hc, yc, yu, yv, changed = s.cards, s.x, s.hc, s.yc, s.yu, s.yv, s.changed
    m = s.edges
    kind, weight, base, stride, tables, magic = m.kind, m.weight, m.base, m.stride, m.tables, m.magic
    for p in range(len(x)):
        if changed[p] <= since or cards[p] == 0:
            continue
        for k in range(degree(net, p)):
            q = head(net, p, k)
            if cards[q] == 0 or (q < p and changed[q] > since):
                continue
            u = min(p, q)
            v = max(p, q)
            if x[u] == c or x[v] == c:
                continue
            e = edge(net, p, k)
            has_u = cards[u] > c
            has_v = cards[v] > c
            if has_u and has_v:
                there = pair(kind, weight, base, stride, tables, magic, e, c, x[v]) - yc[e] - yv[e]
                back = pair(kind, weight, base, stride, tables, magic, e, x[u], c) + yc[e] - yu[e]
                if there < 0 or back < 0:
                    shift = there if there < 0 or there + back < 0 else -back
                    yc[e] += shift
                    hc[u] += shift
                    hc[v] -= shift
            elif has_u:  # v cannot follow: the edge is a unary cost of u, and its dual says it exactly
                shift = pair(kind, weight, base, stride, tables, magic, e, c, x[v]) - yc[e] - yv[e]
                yc[e] += shift
                hc[u] += shift
            elif has_v:
                shift = pair(kind, weight, base, stride, tables, magic, e, x[u], c) + yc[e] - yu[e]
                yc[e] -= shift
                hc[v] += shift


@lean
def _mark_sink_side(s, net, cap, term, t):
    """Give side -1 to the free nodes that reach the sink, so that side >= 0 is the largest source side."""
    c = s.state[LABEL]
    count = 0
    for p in range(len(s.x)):
        if t.side[p] == 0 and s.x[p] != c and s.cards[p] > c:
            if pending(s, p):
                touch(s, net, cap, p)
            for k in range(degree(net, p)):
                if cap[arc(net, p, k)] > 0 and t.side[head(net, p, k)] < 0:
                    t.queue[count] = p
                    count += 1
                    break
    for i in range(count):
        t.side[t.queue[i]] = -1
    while count > 0:
        count -= 1
        p = np.int64(t.queue[count])
        for k in range(degree(net, p)):
            q = head(net, p, k)
            if t.side[q] == 0 and cap[sister(net, p, k)] > 0:
                t.side[q] = -1
                t.queue[count] = q
                count += 1


@lean
def _close(s, net, cap, term, side, least):
    """Put the flow into the duals and switch the touched nodes with side >= least; returns how many."""
    c = s.state[LABEL]
    cards, x, hx, hc, yc, yu, yv = s.cards, s.x, s.hx, s.hc, s.yc, s.yu, s.yv
    touched, order, changed, state = s.touched, s.order, s.changed, s.state
    m = s.edges
    kind, weight, base, stride, tables, magic = m.kind, m.weight, m.base, m.stride, m.tables, m.magic
    for p in range(len(x)):
        hc[p] = hx[p] - term[p]
    count = 0
    for i in range(state[TOUCHED]):
        p = np.int64(order[i])
        for k in range(degree(net, p)):
            q = head(net, p, k)
            if cards[q] == 0 or (q < p and touched[q] == state[NUMBER]):
                continue
            e = edge(net, p, k)
            u = min(p, q)
            v = max(p, q)
            if x[u] != c and x[v] != c and cards[u] > c and cards[v] > c:
                forward = cap[arc(net, p, k)] if p < q else cap[sister(net, p, k)]
                yc[e] = pair(kind, weight, base, stride, tables, magic, e, c, x[v]) - yv[e] - forward
                if side[v] >= least and side[u] < least:
                    # exact unless the arc was truncated: then v alone is cheaper than the cut believed
                    wrong = pair(kind, weight, base, stride, tables, magic, e, x[u], c) + yc[e] - yu[e]
                    if wrong < 0:
                        yc[e] -= wrong
                        hc[u] -= wrong
                        hc[v] += wrong
    for i in range(state[TOUCHED]):
        p = np.int64(order[i])
        if side[p] >= least:
            count += 1
            for k in range(degree(net, p)):
                q = head(net, p, k)
                if cards[q] > 0:
                    e = edge(net, p, k)
                    if p < q:
                        yu[e] = yc[e]
                    else:
                        yv[e] = -yc[e]
    if count > 0:
        state[CLOCK] += 1
        for i in range(state[TOUCHED]):
            p = order[i]
            if side[p] >= least:
                x[p] = c
                hx[p] = hc[p]
                changed[p] = state[CLOCK]
    return count


@compiled
def move(s, net, cap, term, t, c, since, largest, left):
    """The best expansion of label c: how many variables took it; -1, and no label changed, after ``left`` seconds.

    Flow and duals of a move that was broken off are those of no labelling: the next one has to begin anew.
    """
    s.state[LABEL] = c
    s.state[NUMBER] += 1
    s.state[TOUCHED] = 0
    if since < 0:
        _compute_all(s, net, cap)
    else:
        _repair(s, net, since)
    zero = s.hx[0] - s.hx[0]
    hope = False
    for p in range(len(s.x)):
        d = s.hx[p] - s.hc[p] if s.cards[p] > c else zero
        term[p] = d
        hope |= d > 0
    if not hope:
        return 0
    push_to_neighbours(net, cap, term, zero, s)
    plant(t, term, zero, since < 0)
    run(net, cap, term, zero, t, s, left)
    if not ended(t):
        return -1
    least = 1
    if largest:
        for p in range(len(s.x)):
            if term[p] > 0:
                least = 0
                break
        if least == 0:
            _mark_sink_side(s, net, cap, term, t)
    return _close(s, net, cap, term, t.side, least)


@lean
def initial_duals(s, net, y, first, step, h, start, label_step):
    """Split the cost of every edge between its ends so that the invariant holds; all other duals are 0."""
    for u in range(len(s.x)):
        if s.cards[u] == 0:
            continue
        for k in range(degree(net, u)):
            v = head(net, u, k)
            if v < u or s.cards[v] == 0:
                continue
            e = edge(net, u, k)
            a = np.int64(s.x[u])
            b = np.int64(s.x[v])
            if a == b:
                continue
            m = s.edges
            cost = pair(m.kind, m.weight, m.base, m.stride, m.tables, m.magic, e, a, b)
            s.yu[e] = half(cost)
            s.yv[e] = cost - s.yu[e]
            y[first[e] + step * a] = s.yu[e]
            h[start[u] + label_step * a] += s.yu[e]
            if s.cards[v] > a:
                h[start[v] + label_step * a] -= s.yu[e]
            y[first[e] + step * b] = -s.yv[e]
            h[start[v] + label_step * b] += s.yv[e]
            if s.cards[u] > b:
                h[start[u] + label_step * b] -= s.yv[e]


@lean
def fill_heights(unary, node, count, nodes, h):
    """Unary costs, variable by variable, as heights label by label; some variables at a time stay in the cache."""
    n = len(node)
    for begin in range(0, n, PART):
        end = min(n, begin + PART)
        for a in range(count):
            for i in range(begin, end):
                h[a * nodes + node[i]] = unary[i * count + a]


@lean
def change_heights(before, after, offset, node, start, label_step, h):
    """Put other unary costs in the place of those that the heights were made from; returns the largest height."""
    most = h[0] - h[0]
    for i in range(len(node)):
        at = start[node[i]]
        for a in range(offset[i + 1] - offset[i]):
            change = after[offset[i] + a] - before[offset[i] + a]
            if change != 0:
                h[at + label_step * a] += change
            most = max(most, abs(h[at + label_step * a]))
    return most


@lean
def relabel(s, net, y, first, step, h, start, label_step, wanted):
    """Give variables other labels, as a move would: duals of the new labels make up for it, so the invariant holds."""
    m = s.edges
    kind, weight, base, stride, tables, magic = m.kind, m.weight, m.base, m.stride, m.tables, m.magic
    s.state[CLOCK] += 1
    for p in range(len(s.x)):
        a = np.int64(wanted[p])
        if s.cards[p] == 0 or s.x[p] == a:
            continue
        for k in range(degree(net, p)):
            q = head(net, p, k)
            if s.cards[q] == 0:
                continue
            e = edge(net, p, k)
            u = min(p, q)
            v = max(p, q)
            at = first[e] + step * a
            if p == u:
                s.yu[e] = pair(kind, weight, base, stride, tables, magic, e, a, s.x[v]) - s.yv[e]
                shift = s.yu[e] - y[at]
            else:
                s.yv[e] = pair(kind, weight, base, stride, tables, magic, e, s.x[u], a) - s.yu[e]
                shift = -s.yv[e] - y[at]
            if shift != 0:
                y[at] += shift
                if s.cards[u] > a:
                    h[start[u] + label_step * a] += shift
                if s.cards[v] > a:
                    h[start[v] + label_step * a] -= shift
        s.x[p] = a
        s.changed[p] = s.state[CLOCK]
    for p in range(len(s.x)):
        if s.cards[p] > 0:
            s.hx[p] = h[start[p] + label_step * np.int64(s.x[p])]


@lean
def proves(s, net, y, first, step, h, start, label_step):
    """Do the duals prove that no labelling is better (Potts edges only)?

    They do when every variable has its lowest height and no dual differs by more than its edge weighs: the bound of the
    duals is then the energy.
    """
    cards, kind, weight = s.cards, s.edges.kind, s.edges.weight
    for u in range(len(s.x)):
        for a in range(cards[u]):
            if h[start[u] + label_step * a] < s.hx[u]:
                return False
        for k in range(degree(net, u) if cards[u] > 0 else 0):
            v = head(net, u, k)
            if v < u or cards[v] == 0:
                continue
            e = edge(net, u, k)
            if kind[e] != POTTS:
                return False
            low = y[first[e]]
            high = low
            for a in range(1, max(cards[u], cards[v])):
                low = min(low, y[first[e] + step * a])
                high = max(high, y[first[e] + step * a])
            if high - low > weight[e]:
                return False
    return True


def half(cost):
    """Half of a cost, in its own type."""
    return cost >> 1 if isinstance(cost, int | np.integer) else cost * 0.5


@overload(half)
def _half(cost):
    if isinstance(cost, types.Integer):
        return lambda cost: cost - cost + np.int32(cost >> 1)
    return lambda cost: cost * 0.5


@compiled
def gather(c, flat, first, size, out):
    for i in range(len(first)):
        if size[i] > c:
            out[i] = flat[first[i] + c]


@lean
def scatter(c, flat, first, size, values):
    for i in range(len(first)):
        if size[i] > c:
            flat[first[i] + c] = values[i]


@lean
def expand(g, y, first, step, scale, diagonal_of, diagonals, at, out):
    """m_u = y_uv (with the diagonal that was moved to u) and m_v = -y_uv, per factor."""
    m = len(g.kind)
    for begin in range(0, m, EXPAND):  # a block of factors at a time: y is read, and out written, in cache
        end = min(m, begin + EXPAND)
        most = 0
        for f in range(begin, end):
            most = max(most, g.cards[g.scope[2 * f]], g.cards[g.scope[2 * f + 1]])
        for a in range(most):
            for f in range(begin, end):
                ca = at[2 * f + 1] - at[2 * f]
                cb = at[2 * f + 2] - at[2 * f + 1]
                if a >= max(ca, cb):
                    continue
                v = scale * y[first[f] + step * a]
                if a < cb:
                    out[at[2 * f + 1] + a] = -v
                if a < ca:
                    d = diagonal_of[f]
                    if d >= 0 and a < cb:
                        v += g.weight[f] * diagonals[d + a]
                    out[at[2 * f] + a] = v
