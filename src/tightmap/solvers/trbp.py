"""TRBP: tree-reweighted belief propagation, min-sum, for factors of any order (Wainwright, Jaakkola and
Willsky 2005).

T forests cover the factors, and rho_A is the part of them that factor A is in.  Moving rho_A m_{A->i} from A to its
variables i leaves the energy as it is,

    E = sum over forests of (1/T) [sum_i b_i + sum over A in the forest of (theta_A / rho_A - sum_i m_{A->i})],
    b_i = theta_i + sum_B rho_B m_{B->i},

so for any messages m the sum of the minima of the forests is a lower bound, which is to be large.  All factors send to
their variables at once, damped,

    m_{A->i}(x_i) <- min over the other variables of A of [theta_A / rho_A + sum_j (b_j - m_{A->j})].

It need not converge and nothing is monotone.  The forests are minimised exactly by dynamic programming.  The messages
of those programs, added up over the forests, are messages between factors and variables too, so the certified bound of
the result (energies.lower_bound) is at least the mean of the forests' minima.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tightmap.energy.duals import Dual, given_messages
from tightmap.energy.energies import BLOCK, blocks, energy, lower_bound, message_offsets
from tightmap.errors import OptionError
from tightmap.factors.effort import check_effort
from tightmap.factors.kernels import labellings, minmarg, workspace
from tightmap.graph.graph import FloatArray, Graph, IntArray
from tightmap.graph.one_form import one_form
from tightmap.moves.context import Context, Labels
from tightmap.moves.coordinate_descent import local_minimum
from tightmap.moves.forest_cover import Cover, forest_cover
from tightmap.runtime import parallel
from tightmap.runtime.compiled import compiled
from tightmap.runtime.pace import EVER, LOOK, TimeUp, end_of, late, time_left
from tightmap.solvers.base import Final, Init, Progress, Solver
from tightmap.solvers.capabilities import Capabilities

EVERY = 10  # iterations: so often the bound is computed, and the labelling polished by descent
GRACE = 0.2  # seconds that computing the last bound may take after the time limit


@one_form
@compiled
def _beliefs(first, last, g, rho, messages, at, beliefs, labels):
    """b_i of every variable of some blocks, and its best label."""
    for i in range(first * BLOCK, min(len(g.cards), last * BLOCK)):
        o, c = g.offset[i], g.cards[i]
        for s in range(c):
            beliefs[o + s] = g.unary[o + s]
        for a in range(g.adj_start[i], g.adj_start[i + 1]):
            f = g.adj_factor[a]
            m = at[g.scope_start[f] + g.adj_pos[a]]
            for s in range(c):
                beliefs[o + s] += rho[f] * messages[m + s]
        best = 0
        for s in range(1, c):
            if beliefs[o + s] < beliefs[o + best]:
                best = s
        labels[i] = best


@compiled
def _send(first, last, g, rho, beliefs, messages, at, damping, scratch, change, level, left):
    """New messages of some blocks of factors (fewer when time is up).

    change is the largest step of each block, level the sum of |message|.
    """
    m = len(g.kind)
    work = np.empty(scratch)
    out = np.empty(scratch)
    inner = np.empty(scratch)
    start = np.empty(128, np.int64)
    until = end_of(left)
    for block in range(first, last):
        largest = 0.0
        total = 0.0
        spent = 0.0
        for f in range(block * BLOCK, min(m, (block + 1) * BLOCK)):
            begin = g.scope_start[f]
            k = g.scope_start[f + 1] - begin
            base = at[begin]
            spent += k * (20.0 + labellings(g, f))
            if spent > LOOK:
                spent = 0.0
                if late(until):
                    break
            if at[begin + k] - base > len(inner):
                inner = np.empty(at[begin + k] - base)
            for p in range(k):
                i = g.scope[begin + p]
                start[p] = at[begin + p] - base
                for s in range(g.cards[i]):
                    inner[start[p] + s] = rho[f] * (beliefs[g.offset[i] + s] - messages[at[begin + p] + s])
            for p in range(k):
                c = g.cards[g.scope[begin + p]]
                minmarg(g, f, p, inner, start, out, work)
                low = out[0]
                for s in range(1, c):
                    low = min(low, out[s])
                for s in range(c):
                    old = messages[at[begin + p] + s]
                    new = damping * old + (1.0 - damping) * (out[s] - low) / rho[f]
                    messages[at[begin + p] + s] = new
                    largest = max(largest, abs(new - old))
                    total += abs(new)
        change[block] = largest
        level[block] = total


@compiled
def _eliminate(g, rho, factor, towards, share, messages, at, cost, out_messages, scratch, left):
    """Dynamic programming on one forest: cost (b_i on entry) is gathered at the roots, and every move is recorded.

    False when time is up; then the moves so far are recorded.
    """
    work = np.empty(scratch)
    out = np.empty(scratch)
    inner = np.empty(scratch)
    start = np.empty(128, np.int64)
    until = end_of(left)
    spent = 0.0
    for e in range(len(factor)):
        f, root = factor[e], towards[e]
        spent += 20.0 + labellings(g, f)
        if spent > LOOK:
            spent = 0.0
            if late(until):
                return False
        first = g.scope_start[f]
        k = g.scope_start[f + 1] - first
        base = at[first]
        if at[first + k] - base > len(inner):
            inner = np.empty(at[first + k] - base)
        for p in range(k):
            i = g.scope[first + p]
            start[p] = at[first + p] - base
            for s in range(g.cards[i]):
                inner[start[p] + s] = rho[f] * (cost[g.offset[i] + s] - messages[at[first + p] + s])
        minmarg(g, f, root, inner, start, out, work)
        for p in range(k):
            i = g.scope[first + p]
            o, m = g.offset[i], at[first + p]
            for s in range(g.cards[i]):
                if p == root:
                    moved = out[s] / rho[f] - messages[m + s]
                    cost[o + s] += moved
                else:
                    moved = -cost[o + s]
                    cost[o + s] = 0.0
                out_messages[m + s] += share * moved
    return True


def forest_messages(
    graph: Graph, cover: Cover, messages: FloatArray, beliefs: FloatArray, left: float = EVER
) -> FloatArray:
    """Messages whose bound is at least the mean over the forests of their exact minima; TimeUp if that takes long."""
    at = message_offsets(graph)
    rho_of_entry = np.repeat(np.repeat(cover.rho, np.diff(graph.arrays.scope_start)), np.diff(at))
    out = rho_of_entry * messages
    share = 1.0 / (len(cover.start) - 1)
    for begin, end in zip(cover.start[:-1], cover.start[1:], strict=True):
        own, side = cover.factor[begin:end], cover.towards[begin:end]
        cost = beliefs.copy()
        scratch = workspace(graph.arrays)
        if not _eliminate(graph.arrays, cover.rho, own, side, share, messages, at, cost, out, scratch, left):
            raise TimeUp
    return out


@dataclass
class State:
    graph: Graph
    context: Context
    cover: Cover
    at: IntArray
    messages: FloatArray
    beliefs: FloatArray
    labels: Labels
    scratch: int
    iteration: int = 0
    bound: float = -math.inf
    bound_seconds: float = 0.0  # that the last bound took
    dual: FloatArray | None = None  # the messages of the best bound
    record: float = math.inf


@dataclass(frozen=True)
class TRBP(Solver):
    """Options of tree-reweighted belief propagation.

    damping    part of the old message that is kept, 0 <= damping < 1
    sweeps     most iterations (the method need not converge)
    tolerance  stop when no message changes by more than this, relative to the mean of their absolute values
    """

    damping: float = 0.5
    sweeps: int = 200
    tolerance: float = 1e-5

    name: ClassVar[str] = "trbp"
    summary: ClassVar[str] = "tree-reweighted belief propagation for any order, with certified bounds of its forests"
    capabilities: ClassVar[Capabilities] = Capabilities(bounds=True)

    def __post_init__(self) -> None:
        if not 0.0 <= self.damping < 1.0:
            raise OptionError(f"trbp: damping must be at least 0 and less than 1, got {self.damping}")
        if self.sweeps < 1:
            raise OptionError(f"trbp: sweeps must be at least 1, got {self.sweeps}")
        if not self.tolerance >= 0.0:
            raise OptionError(f"trbp: tolerance must be at least 0, got {self.tolerance}")

    def check(self, graph: Graph) -> None:
        super().check(graph)
        check_effort(graph, self.name, contraction=False)

    def start(self, graph: Graph, init: Init, context: Context) -> State | None:
        try:
            cover = forest_cover(graph, context)
        except TimeUp:
            return None
        at = message_offsets(graph)
        messages = np.zeros(int(at[-1]))
        given = given_messages(init, graph)
        if given is not None:
            messages = given / np.repeat(np.repeat(cover.rho, np.diff(graph.arrays.scope_start)), np.diff(at))
        beliefs, labels = np.empty(len(graph.arrays.unary)), np.zeros(graph.n, dtype=np.int64)
        state = State(graph, context, cover, at, messages, beliefs, labels, workspace(graph.arrays))
        parallel.run(_beliefs, blocks(graph.n), graph.arrays, cover.rho, messages, at, beliefs, labels)
        return state

    def step(self, state: State | None) -> Progress:
        if state is None:
            return Progress(iterations=0)
        graph, g, rho = state.graph, state.graph.arrays, state.cover.rho
        change, level = np.zeros((2, blocks(graph.m)))
        messages, beliefs, at = state.messages, state.beliefs, state.at
        rest = (self.damping, state.scratch, change, level, time_left(state.context))
        parallel.run(_send, len(change), g, rho, beliefs, messages, at, *rest)
        if state.context.remaining() <= 0.0:
            return Progress(iterations=0)
        parallel.run(_beliefs, blocks(graph.n), g, rho, messages, at, beliefs, state.labels)
        state.iteration += 1
        moved = float(change.max()) * len(state.messages) / max(1e-300, float(level.sum()))
        progress = Progress(info={"change": moved})
        progress.done = moved <= self.tolerance or state.iteration >= self.sweeps
        if state.iteration % EVERY == 1 or progress.done:
            progress.bound = self._bound(state, time_left(state.context))
            progress.labels = local_minimum(graph, state.labels, state.context)
        else:
            value = energy(graph, state.labels)
            if value < state.record:
                state.record, progress.labels = value, state.labels.copy()
        return progress

    def _bound(self, state: State, left: float) -> float | None:
        begin = time.perf_counter()
        try:
            messages = forest_messages(state.graph, state.cover, state.messages, state.beliefs, left)
        except TimeUp:
            return None
        bound = lower_bound(state.graph, messages)
        state.bound_seconds = time.perf_counter() - begin
        if state.dual is None or bound > state.bound:
            state.bound, state.dual = bound, messages
        return bound

    def finish(self, state: State | None) -> Final:
        if state is None:
            return Final()
        entries = len(state.messages) * (len(state.cover.start) - 1)
        if state.context.remaining() > 0.0 or (1e-7 * entries if state.dual is None else state.bound_seconds) < GRACE:
            self._bound(state, GRACE)
        dual = state.dual
        forests = len(state.cover.start) - 1
        note = f"{forests} forests cover the factors"
        return Final(
            labels=local_minimum(state.graph, state.labels, state.context),
            bound=state.bound if dual is not None else None,
            state=None if dual is None else Dual(state.graph, lambda: dual),
            note=note,
        )
