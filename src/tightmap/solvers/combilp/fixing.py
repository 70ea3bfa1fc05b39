"""Labels that no better labelling has, by any messages, and the model that is left without them.

With the blocks of a reparametrisation (blocks.py) and their minima, every labelling x with x_i = s costs at least

    L_i(s) = bound + b_i(s) - min b_i + sum_f [min over x_f with x_i = s of c_f  -  min c_f],

one sum over the factors of i.  Where that is not below the energy of the best labelling, no better one has x_i = s, and
the label goes (reduced-cost fixing, as in integer programming).  Where the relaxation is nearly tight and costs
differ, as in location problems, matching or protein design, hardly anything is left, and the exact search ends at once
on what is: variables with one label are folded into the others, and as the costs are the reparametrised ones, the
search begins with the bound of the relaxation.

    min E = min(energy of the best labelling, constant + what the folded blocks cost + minimum of the rest)

The labels of the best labelling stay, so that the search knows what to beat.  Every entry is rounded down.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tightmap.energy.certificate import SHARE, UNIT, Certified, certify
from tightmap.energy.energies import energy
from tightmap.factors.kernels import minmarg, most_labels
from tightmap.graph.graph import FloatArray, Graph, IntArray
from tightmap.graph.one_form import one_form
from tightmap.moves.context import Incumbent, Labels
from tightmap.runtime.compiled import compiled
from tightmap.solvers.combilp.blocks import Blocks, load_belief, negative_messages, over_blocks
from tightmap.solvers.combilp.core import Core, Tables, graph_of

ENTRIES = 2_000_000  # of all tables of what is left: more is not searched
FACTORS = 60_000  # the same, of its factors
CHUNK = 1_000_000  # entries of the tables that are cut down together
GONE = 0.3  # part of the labels: where fewer can go, the search on the whole model does as well


@one_form
@compiled
def _reduced_costs(first, last, ids, g, messages, at, low_v, low_f, wrong_v, wrong_f, scratch, longest, out):
    """out[offset_i + s] = L_i(s) - bound, rounded down, for some variables."""
    row, marginal, work = np.empty(most_labels(g.cards)), np.empty(scratch), np.empty(scratch)
    vectors, start = np.empty(longest), np.empty(128, np.int64)
    for k in range(first, last):
        i = ids[k]
        load_belief(g, i, messages, at, row)
        wrong = 2.0 * wrong_v[i]
        for s in range(g.cards[i]):
            row[s] = max(0.0, row[s] - low_v[i])
        for a in range(g.adj_start[i], g.adj_start[i + 1]):
            f = int(g.adj_factor[a])
            negative_messages(g, f, messages, at, vectors, start)
            minmarg(g, f, int(g.adj_pos[a]), vectors, start, marginal, work)
            to = at[g.scope_start[f] + g.adj_pos[a]]
            for s in range(g.cards[i]):
                row[s] += max(0.0, marginal[s] - messages[to + s] - low_f[f])
                # a marginal is as exact as the minimum, relative to what was added
                row[s] -= 32.0 * UNIT * abs(marginal[s])
            wrong += 2.0 * wrong_f[f]
        for s in range(g.cards[i]):
            size = (g.adj_start[i + 1] - g.adj_start[i] + 4) * abs(row[s])
            out[g.offset[i] + s] = row[s] - UNIT * (wrong + size)


def cut(incumbent: Incumbent) -> float:
    """Labellings of this energy or more are not better than the best one."""
    return incumbent.energy - 0.5 * incumbent.graph.quantum


@dataclass
class Rest:
    """What is left, as a core of its own, and the way back."""

    core: Core
    labels: list[Labels]  # of the graph, for every label of every variable of the core
    constant: float  # what the folded blocks cost, the constant of the graph included
    wrong: float  # what rounding may have added to that
    best: Labels  # of the whole graph: the others keep these labels
    limit: Certified  # no labelling with a label that is gone costs less
    removed: int  # labels that are gone

    def outward(self) -> Labels:
        """The best labelling of the rest as one of the graph."""
        labels = self.best.copy()
        for k, i in enumerate(self.core.variables.tolist()):
            labels[i] = self.labels[k][self.core.labels[k]]
        return labels

    def bound(self, graph: Graph) -> Certified:
        """What the search has proven so far about the whole model."""
        raw = self.constant + self.core.bound
        if not math.isfinite(raw):
            return Certified(-math.inf)
        wrong = self.wrong + 4.0 * UNIT * (abs(self.constant) + abs(self.core.bound))
        found = certify(graph, raw, wrong)
        if found <= raw - wrong:  # not rounded up
            found = Certified(float(found), found.error + SHARE * self.core.error)
        return min(found, self.limit)


def fix_labels(blocks: Blocks, incumbent: Incumbent) -> Rest | Certified | None:
    """What is left of the model; a bound where nothing is; None where too much is."""
    graph, g = blocks.graph, blocks.graph.arrays
    low, wrong = blocks.sum()
    raw = graph.constant + low
    wrong += 4.0 * UNIT * (abs(graph.constant) + abs(low))
    target = cut(incumbent)
    extra = np.empty(len(g.unary))
    over_blocks(
        _reduced_costs, blocks.all_v, g, blocks.messages, blocks.at, blocks.low_v, blocks.low_f, blocks.wrong_v,
        blocks.wrong_f, blocks.scratch, blocks.longest, extra,
    )  # fmt: skip
    gone = (raw - wrong) + extra >= target
    if not gone.any():
        return None
    least = np.minimum.reduceat(np.where(gone, np.inf, extra), g.offset[:-1])
    if math.isinf(least.max(initial=0.0)):  # all labels of a variable are gone: nothing is better than the best
        worst = np.minimum.reduceat(extra, g.offset[:-1]).max()
        return certify(graph, raw + float(worst), wrong)
    limit = certify(graph, raw + float(extra[gone].min()), wrong)
    best = incumbent.wide_labels
    gone[g.offset[:-1] + best] = False
    all_labels = g.cards.astype(np.int64)
    count = all_labels - np.add.reduceat(gone, g.offset[:-1], dtype=np.int64)
    if gone.sum() < GONE * len(gone):
        return None
    sizes, free = _sizes(graph, count)
    inside = np.flatnonzero(free > 0)
    if (
        len(inside) > FACTORS
        or sizes[inside].sum() > ENTRIES
        or _sizes(graph, all_labels)[0][inside].sum() > 50 * ENTRIES
    ):
        return None
    alone, outside = np.flatnonzero(count == 1), np.flatnonzero(free == 0)
    own, joint = blocks.excess(best, alone, outside)
    parts = (*blocks.low_v[alone].tolist(), *own.tolist(), *blocks.low_f[outside].tolist(), *joint.tolist())
    folded = math.fsum((graph.constant, *parts))
    wrong = UNIT * float(2.0 * blocks.wrong_v[alone].sum() + 2.0 * blocks.wrong_f[outside].sum())
    wrong += 4.0 * UNIT * (abs(graph.constant) + math.fsum(abs(v) for v in parts))
    core, labels = _core(blocks, gone, count, inside, best)
    hopeless = target - folded
    core.graph = replace(core.graph, hopeless=min(core.graph.hopeless, hopeless))  # only better ones are looked for
    return Rest(core, labels, folded, wrong, best, limit, int(gone.sum()))


def _sizes(graph: Graph, count: IntArray) -> tuple[FloatArray, IntArray]:
    """(m,) entries of the tables with so many labels of every variable, and variables with more than one."""
    g = graph.arrays
    if graph.m == 0:
        return np.zeros(0), np.zeros(0, np.int64)
    many = count[g.scope]
    entries = np.exp2(np.add.reduceat(np.log2(many.astype(np.float64)), g.scope_start[:-1]))
    return entries, np.add.reduceat((many > 1).astype(np.int64), g.scope_start[:-1])


def _core(
    blocks: Blocks, gone: np.ndarray, count: IntArray, inside: IntArray, best: Labels
) -> tuple[Core, list[Labels]]:
    """The variables with more than one label left, with the reparametrised costs."""
    graph, g = blocks.graph, blocks.graph.arrays
    all_labels = g.cards.astype(np.int64)
    variables = np.flatnonzero(count > 1)
    place = np.full(graph.n, -1, np.int64)
    place[variables] = np.arange(len(variables))
    kept = [np.flatnonzero(~gone[g.offset[i] : g.offset[i + 1]]) for i in range(graph.n)]
    own, _, _ = blocks.tables(variables, np.zeros(0, np.int64))
    begin = np.concatenate(([0], np.cumsum(g.cards[variables], dtype=np.int64)))
    unary = [own[begin[k] : begin[k + 1]][kept[i]].copy() for k, i in enumerate(variables.tolist())]
    size = [np.abs(costs) for costs in unary]  # of what is added up
    groups: dict[tuple[int, ...], Tables] = {}
    entries = np.cumsum(_sizes(graph, all_labels)[0][inside])
    none = np.zeros(0, np.int64)
    for chunk in np.split(inside, np.searchsorted(entries, np.arange(CHUNK, entries[-1:].sum(), CHUNK))):
        _, joint, first = blocks.tables(none, chunk)
        for k, f in enumerate(chunk.tolist()):
            scope = g.scope[g.scope_start[f] : g.scope_start[f + 1]].tolist()
            table = joint[first[k] : first[k + 1]].reshape(g.cards[scope])[np.ix_(*(kept[i] for i in scope))]
            free = [p for p, i in enumerate(scope) if count[i] > 1]
            free.sort(key=lambda p: scope[p])
            table = table.transpose([*free, *(p for p in range(len(scope)) if p not in free)])
            table = table.reshape([count[scope[p]] for p in free])
            mine = [int(place[scope[p]]) for p in free]
            if len(mine) == 1:
                unary[mine[0]] += table
                size[mine[0]] += np.abs(table)
            else:
                groups.setdefault(table.shape, []).append((mine, table.reshape(-1)))
    for k, i in enumerate(variables.tolist()):
        unary[k] -= 2.0 * UNIT * (g.adj_start[i + 1] - g.adj_start[i] + 2) * size[k]
    rest = graph_of(np.concatenate(unary) if unary else np.zeros(0), count[variables], groups)
    labels = np.array([int(np.searchsorted(kept[i], best[i])) for i in variables.tolist()], dtype=np.int64)
    value = energy(rest, labels)
    core = Core(variables, inside, rest, 0.0, 0.0, labels, value, members=set(variables.tolist()))
    return core, [kept[i] for i in variables.tolist()]
