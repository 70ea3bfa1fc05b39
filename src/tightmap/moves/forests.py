"""Forests inside a graph, minimised exactly by dynamic programming while the rest of the labelling stays.

A block is a set of variables in which every factor has at most two members, and these pairs form a forest.  Given the
labels outside, the energy of the block is a sum over the edges of that forest, so leaves-to-root min-sum messages and
one pass back give its exact minimum: the block version of BCD (paper §3), and an exact solver when one block is
everything.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tightmap.errors import ModelError
from tightmap.factors.kernels import add_slice, load_unary, minmarg, value, workspace
from tightmap.graph.graph import Graph
from tightmap.graph.one_form import one_form
from tightmap.moves.context import Context, Labels
from tightmap.runtime.compiled import compiled, lean, shared
from tightmap.runtime.pace import LOOK, end_of, late, time_left


class Forests(NamedTuple):
    """Blocks as flat arrays: variables of block b are order[start[b]:start[b + 1]], parents before children.

    parent[v] and link[v] (the factor to the parent, -1 for a root) belong to the place in ``order``, not to the
    variable: a variable may be in several blocks.
    """

    start: np.ndarray
    order: np.ndarray
    parent: np.ndarray
    link: np.ndarray


@dataclass(frozen=True)
class Lines:
    """The rows, columns, diagonals or antidiagonals of an image, numbered."""

    shape: tuple[int, int]
    kind: str

    @property
    def count(self) -> int:
        height, width = self.shape
        return {"rows": height, "columns": width}.get(self.kind, height + width - 1)

    def nodes(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """The variables of some lines one after the other, and where each line starts among them."""
        height, width = self.shape
        lines = []
        for k in range(first, last):
            if self.kind == "rows":
                lines.append(np.arange(k * width, (k + 1) * width))
            elif self.kind == "columns":
                lines.append(np.arange(k, height * width, width))
            else:  # column - row = k - (height - 1); antidiagonals: the same in a mirror
                row = np.arange(max(0, height - 1 - k), min(height, width + height - 1 - k))
                column = row + k - (height - 1)
                lines.append(row * width + (column if self.kind == "diagonals" else width - 1 - column))
        start = np.concatenate(([0], np.cumsum([len(b) for b in lines]))).astype(np.int64)
        return start, np.concatenate(lines).astype(np.int64)


def grid_shape(graph: Graph) -> tuple[int, int] | None:
    """Height and width, where the variables are the pixels of an image."""
    if graph.grid_shape is not None:
        return graph.grid_shape
    from tightmap.graph.stencil import find_stencil

    stencil = find_stencil(graph) if graph.order == 2 else None
    return None if stencil is None else (stencil.height, stencil.width)


def forest_blocks(graph: Graph, what: str) -> Forests:
    """Blocks "rows", "columns", "lines" (both), "diagonals", "antidiagonals" of a grid, or "forests" of any graph."""
    if what == "forests":
        label = greedy_forests(graph.arrays)
        blocks = [np.flatnonzero(label == b) for b in range(int(label.max()) + 1)]
        start = np.concatenate(([0], np.cumsum([len(b) for b in blocks]))).astype(np.int64)
        return rooted_blocks(graph, start, np.concatenate(blocks).astype(np.int64), what)
    shape = grid_shape(graph)
    if shape is None:
        raise ModelError(f"bcd: blocks={what!r} needs a grid model; blocks='forests' works on any graph")
    if what != "lines":
        lines = Lines(shape, what)
        return rooted_blocks(graph, *lines.nodes(0, lines.count), what)
    rows, columns = forest_blocks(graph, "rows"), forest_blocks(graph, "columns")
    start = np.concatenate([rows.start[:-1], len(rows.order) + columns.start])
    return Forests(start, *(np.concatenate(pair) for pair in zip(rows[1:], columns[1:], strict=True)))


def rooted_blocks(graph: Graph, start: np.ndarray, nodes: np.ndarray, what: str) -> Forests:
    """Blocks of these variables (block b: nodes[start[b]:start[b + 1]]), rooted; what they are is for the error."""
    order, parent, link, ok = root_blocks(graph.arrays, start, nodes)
    if not ok:
        raise ModelError(
            f"bcd: blocks={what!r}: a factor has three variables in one block or the block has a cycle; "
            "try blocks='forests'"
        )
    return Forests(start, order, parent, link)


@one_form
@compiled
def greedy_forests(g):
    """Colour the variables so that every colour class is a block: a variable joins the first class where it fits."""
    n = len(g.cards)
    label = np.full(n, -1, np.int64)
    left = n
    b = 0
    root = np.empty(n, np.int64)
    seen = np.full(n, -1, np.int64)
    while left > 0:
        for i in range(n):
            root[i] = i
        for i in range(n):
            if label[i] >= 0:
                continue
            fits = True
            for a in range(g.adj_start[i], g.adj_start[i + 1]):
                f = int(g.adj_factor[a])
                members = 0
                for p in range(g.scope_start[f], g.scope_start[f + 1]):
                    j = g.scope[p]
                    if j != i and label[j] == b:
                        members += 1
                        r = j
                        while root[r] != r:
                            root[r] = root[root[r]]
                            r = root[r]
                        # two links into the same tree, by one factor or by two, would close a cycle
                        if seen[r] == i:
                            fits = False
                        seen[r] = i
                if members > 1:
                    fits = False
                if not fits:
                    break
            if fits:
                label[i] = b
                left -= 1
                for a in range(g.adj_start[i], g.adj_start[i + 1]):
                    f = int(g.adj_factor[a])
                    for p in range(g.scope_start[f], g.scope_start[f + 1]):
                        j = g.scope[p]
                        if j != i and label[j] == b:
                            r = j
                            while root[r] != r:
                                r = root[r]
                            root[r] = i
        for i in range(n):
            seen[i] = -1
        b += 1
    return label


@one_form
@compiled
def root_blocks(g, start, nodes):
    """Order the variables of every block so that parents come first; False if a block is not a forest."""
    n = len(g.cards)
    order = np.empty(len(nodes), np.int64)
    parent = np.full(len(nodes), -1, np.int64)
    link = np.full(len(nodes), -1, np.int64)
    inside = np.full(n, -1, np.int32)
    place = np.full(n, -1, np.int32)
    for b in range(len(start) - 1):
        for q in range(start[b], start[b + 1]):
            inside[nodes[q]] = b
            place[nodes[q]] = -1
        top = start[b]
        head = start[b]
        for q in range(start[b], start[b + 1]):
            if place[nodes[q]] >= 0:
                continue
            order[top] = nodes[q]
            place[nodes[q]] = top
            top += 1
            while head < top:
                i = order[head]
                for a in range(g.adj_start[i], g.adj_start[i + 1]):
                    f = int(g.adj_factor[a])
                    if f == link[head]:
                        continue
                    members = 0
                    for p in range(g.scope_start[f], g.scope_start[f + 1]):
                        j = g.scope[p]
                        if j != i and inside[j] == b:
                            members += 1
                            if place[j] >= 0 or members > 1:
                                return order, parent, link, False
                            order[top] = j
                            place[j] = top
                            parent[top] = i
                            link[top] = f
                            top += 1
                head += 1
    return order, parent, link, True


@lean
def _position(g, f, i):
    for p in range(g.scope_start[f], g.scope_start[f + 1]):
        if g.scope[p] == i:
            return p - g.scope_start[f]
    return -1


@lean
def _message_up(g, f, i, up, row, labels, start, out, work):
    """out = min over variable i of row + factor f, as a function of the parent at position up; others stay fixed.

    The min-marginal of a pair; of more variables only the slices of the two that are free are looked at.
    """
    first = g.scope_start[f]
    if g.scope_start[f + 1] - first == 2:
        minmarg(g, f, up, row, start, out, work)
        return
    now = labels[i]
    count = g.cards[g.scope[first + up]]
    for t in range(count):
        out[t] = np.inf
    for s in range(g.cards[i]):
        for t in range(count):
            work[t] = row[s]
        labels[i] = s
        add_slice(g, f, up, labels, work, 1.0)
        for t in range(count):
            out[t] = work[t] if work[t] < out[t] else out[t]
    labels[i] = now


@shared(allocates=True)
def minimise_forest(g, labels, order, parent, link, cost, place, scratch, noise, always, until):
    """Exact minimum over the variables of one block, noise added to its unaries.  Returns the change of that sum.

    Labels change only if it falls, or always (for sampling, where noise is part of the game); never when time is up.

    cost is room for the labels of the block, variable by variable: their costs plus the messages of the children.
    place is zero for all variables before and after the call; in between it has the places in the block, from one on.
    """
    work = np.empty(scratch)
    out = np.empty(scratch)
    start = np.zeros(2, np.int64)
    spent = 0
    hurried = False
    before = 0.0  # present energy of everything that touches the block
    total = 0.0  # the best it can be
    first = np.empty(len(order) + 1, np.int64)
    first[0] = 0
    for q in range(len(order)):
        place[order[q]] = q + 1
        first[q + 1] = first[q] + g.cards[order[q]]
    # given the rest, a factor with one member in the block is a unary cost; factors with two members are the links
    for q in range(len(order)):
        i = order[q]
        row = cost[first[q] : first[q + 1]]
        spent += len(row) * (1 + g.adj_start[i + 1] - g.adj_start[i])
        if spent > LOOK:
            spent = 0
            hurried = late(until)
            if hurried:
                break
        load_unary(g, i, row)
        if always:
            for s in range(len(row)):
                row[s] += noise[g.offset[i] + s]
        for a in range(g.adj_start[i], g.adj_start[i + 1]):
            f = int(g.adj_factor[a])
            alone = True
            for p in range(g.scope_start[f], g.scope_start[f + 1]):
                j = g.scope[p]
                if j != i and place[j] > 0:
                    alone = False
            if alone:
                add_slice(g, f, int(g.adj_pos[a]), labels, row, 1.0)
        before += row[labels[i]]
        if link[q] >= 0:
            before += value(g, link[q], labels)
    for q in range(len(order) - 1, -1, -1):
        i = order[q]
        f = link[q]
        row = cost[first[q] : first[q + 1]]
        spent += len(row) * len(row)
        if spent > LOOK:
            spent = 0
            hurried = hurried or late(until)
        if hurried:
            break
        if f < 0:
            low = row[0]
            for s in range(1, len(row)):
                low = min(low, row[s])
            total += low
            continue
        j = parent[q]
        _message_up(g, f, i, _position(g, f, j), row, labels, start, out, work)
        at = first[place[j] - 1]
        for s in range(g.cards[j]):
            cost[at + s] += out[s]
    for i in order:
        place[i] = 0
    if hurried or (not always and not total < before - 1e-10 * (abs(before) + abs(total))):
        return 0.0
    for q in range(len(order)):
        i = order[q]
        f = link[q]
        row = cost[first[q] : first[q + 1]]
        if f >= 0:
            add_slice(g, f, _position(g, f, i), labels, row, 1.0)
        best = 0
        for s in range(1, g.cards[i]):
            if row[s] < row[best]:
                best = s
        labels[i] = best
    return total - before


@compiled
def _minimise_block(g, labels, order, parent, link, cost, place, scratch, left):
    return minimise_forest(g, labels, order, parent, link, cost, place, scratch, cost, False, end_of(left))


def largest_block(graph: Graph, forests: Forests) -> int:
    """The largest number of labels that the variables of one block have together."""
    cards = graph.arrays.cards[forests.order].astype(np.int64)
    return int(np.add.reduceat(cards, forests.start[:-1]).max()) if len(cards) else 0


def sweep_forests(graph: Graph, forests: Forests, labels: Labels, context: Context) -> int:
    """Minimise every block in turn; returns how many blocks improved."""
    improved = 0
    cost = np.empty(largest_block(graph, forests))
    place = np.zeros(graph.n, dtype=np.int32)
    scratch = workspace(graph.arrays)
    for b in range(len(forests.start) - 1):
        at = slice(int(forests.start[b]), int(forests.start[b + 1]))
        gain = _minimise_block(
            graph.arrays,
            labels,
            forests.order[at],
            forests.parent[at],
            forests.link[at],
            cost,
            place,
            scratch,
            time_left(context),
        )
        improved += gain < 0.0
        if context.remaining() <= 0:
            break
    return improved
