"""sdp: the semidefinite relaxation of binary pairwise models, and branch and bound with it.

    E(s) = constant + 1/2 s^T A s over spins s_i = +-1   (one spin carries the linear terms, see moves/spins.py)

    relaxation   minimise 1/2 <A, X> over X positive semidefinite with X_ii = 1, as X_ij = v_i . v_j with unit vectors:
                 v_i <- -g_i / |g_i|,  g_i = sum_j A_ij v_j                                              (mixing.py)
    bound        if A + Diag(y) + t I is positive semidefinite, 1/2 s^T A s >= -1/2 sum_i (y_i + t); y_i = |g_i|, and t
                 is proven by a Cholesky factorisation                                                     (dual.py)
    triangles    a X_ij + b X_il + c X_jl >= -1 with multipliers in the bound                         (triangles.py)
    labellings   signs of v_i . r for random r, each followed by tabu search on single spins

On dense models of two labels, where the linear relaxation says next to nothing, the bound is within a few per cent;
with triangles, for up to some hundred variables, within one or two.  Branching on the spins (tree.py) then closes what
is left: up to a hundred or so variables to the proof, and above as far as time allows.  On sparse graphs message
passing with clusters is the better bound.

References: Goemans and Williamson 1995; Burer and Monteiro 2003; Rendl, Rinaldi and Wiegele 2010; Wang, Chang and
Kolter 2017.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from tightmap.energy.certificate import Certified, certify
from tightmap.errors import ModelError, OptionError
from tightmap.graph.graph import FloatArray, Graph
from tightmap.moves.context import Context, Incumbent, Labels
from tightmap.moves.spins import Spins, spins_of
from tightmap.runtime import clock
from tightmap.runtime.pace import SLICE
from tightmap.solvers.base import Final, Init, Progress, Solver
from tightmap.solvers.capabilities import Capabilities
from tightmap.solvers.sdp.dual import certified_shift
from tightmap.solvers.sdp.mixing import mix, rank
from tightmap.solvers.sdp.rounding import Rounding
from tightmap.solvers.sdp.tree import Tree
from tightmap.solvers.start_labels import given_labels

LARGEST = 5000  # variables: the proof of the bound needs a dense matrix of them
FIRST = 30  # sweeps before the first bound; each later one comes after twice as many as the one before
GAINED = 1e-6  # of the value of the form: a sweep that gains less than this has converged
MOST = 2000  # sweeps


@dataclass
class State:
    graph: Graph
    context: Context
    incumbent: Incumbent
    spins: Spins | None = None
    vectors: FloatArray | None = None
    norms: FloatArray = field(default_factory=lambda: np.zeros(0))
    rounding: Rounding | None = None
    tree: Tree | None = None
    order: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # spins of the tree, the reference first
    at: int = 0  # where the sweep is
    gained: FloatArray = field(default_factory=lambda: np.zeros(1))
    sweeps: int = 0
    converged: bool = False
    next_bound: int = FIRST
    form: float = -math.inf  # certified bound of the form at the root, and its error
    form_error: float = 0.0
    bound: Certified = field(default_factory=lambda: Certified(-math.inf))
    done: bool = False


@dataclass(frozen=True)
class SDP(Solver):
    """Options of the semidefinite relaxation.

    triangles  variables up to which triangle inequalities tighten the bound; 0 for the plain relaxation
    exact      variables up to which it goes on to branch until the optimum is proven; 0 for the bound alone
    roundings  labellings that are made of every bound
    """

    triangles: int = 300
    exact: int = 300
    roundings: int = 10

    name: ClassVar[str] = "sdp"
    summary: ClassVar[str] = "semidefinite relaxation, triangles, branch and bound: dense binary models"
    capabilities: ClassVar[Capabilities] = Capabilities(
        largest_order=2, binary=True, hard_costs=False, bounds=True, random=True
    )

    def __post_init__(self) -> None:
        if self.triangles < 0 or self.exact < 0 or self.roundings < 0:
            raise OptionError("sdp: triangles, exact and roundings must be at least 0")

    def check(self, graph: Graph) -> None:
        super().check(graph)
        if graph.n > LARGEST:
            raise ModelError(
                f"method 'sdp' takes at most {LARGEST} variables, but the model has {graph.n}; try method 'auto'"
            )

    def start(self, graph: Graph, init: Init, context: Context) -> State:
        labels = given_labels(graph, init, context)
        incumbent = context.incumbent_of(graph)
        incumbent.offer(np.zeros(graph.n, np.int64) if labels is None else labels)
        return State(graph, context, incumbent)

    def adopt(self, state: State, labels: Labels) -> None:
        """A better labelling of another method closes more nodes."""
        state.incumbent.offer(labels)

    def step(self, state: State) -> Progress:
        incumbent = state.incumbent
        if state.spins is None:
            state.spins = spins_of(state.graph)
            rng = np.random.default_rng((state.context.seed, 1))
            vectors = rng.normal(size=(state.spins.count, rank(state.spins.count)))
            state.vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
            state.norms = np.zeros(state.spins.count)
            state.rounding = Rounding(state.spins, state.context.seed)
        if state.tree is None:
            if not self._relax(state):
                return Progress(incumbent.wide_labels, energy=incumbent.energy, iterations=0, pending=True)
        else:
            self._branch(state, state.spins, state.tree)
        state.done = state.done or incumbent.proven_by(state.bound)
        return Progress(incumbent.wide_labels, state.bound, state.done, energy=incumbent.energy)

    # ------------------------------------------------------------------------------------------- the root

    def _relax(self, state: State) -> bool:
        """Sweeps until the next bound is due, then that and labellings; False when a slice of time ends before."""
        spins, vectors = state.spins, state.vectors
        assert spins is not None and vectors is not None
        a, n = spins.matrix, spins.count
        g = np.empty(vectors.shape[1])
        end = clock.now() + SLICE
        while state.sweeps < state.next_bound and not state.converged:
            left = min(end - clock.now(), state.context.remaining())
            state.at = mix(a.indptr, a.indices, a.data, vectors, g, state.norms, state.gained, state.at, left)
            if state.at < n or left <= 0.0:
                return False
            state.at = 0
            state.sweeps += 1
            state.converged = state.gained[0] <= GAINED * 0.5 * float(state.norms.sum())
            state.gained[0] = 0.0
        self._certify_root(state, spins)
        self._round(state, vectors)
        state.next_bound = 2 * state.sweeps
        if state.converged or state.sweeps >= MOST:
            if spins.n <= max(self.triangles, self.exact):
                self._plant(state, spins, vectors)
            else:
                state.done = True
        return True

    def _certify_root(self, state: State, spins: Spins) -> None:
        shift = certified_shift(spins.matrix.toarray(), state.norms, context=state.context)
        if shift.bound - shift.error > state.form - state.form_error:
            state.form, state.form_error = shift.bound, shift.error
            state.bound = self._bound(state, spins, shift.bound, shift.error)

    def _bound(self, state: State, spins: Spins, form: float, error: float) -> Certified:
        """A bound of the form as one of the energy."""
        total = spins.error + math.ldexp(error, spins.power) + 2.0**-52 * abs(spins.bound(form))
        return certify(state.graph, spins.bound(form), total, worst=False)

    def _round(self, state: State, vectors: FloatArray) -> None:
        assert state.rounding is not None
        for _ in range(self.roundings):
            if state.context.remaining() <= 0.0:
                return
            state.incumbent.offer(state.rounding.labels(vectors, state.context))

    # ------------------------------------------------------------------------------------------- the tree

    def _plant(self, state: State, spins: Spins, vectors: FloatArray) -> None:
        """The tree, with the reference first: the spin of the linear terms, or the one that others depend on most."""
        matrix = spins.matrix.toarray()
        first = spins.count - 1 if spins.extra else int(np.argmax(np.abs(matrix).sum(axis=1)))
        state.order = np.concatenate(([first], np.delete(np.arange(spins.count), first)))
        matrix = np.ascontiguousarray(matrix[np.ix_(state.order, state.order)])
        state.tree = Tree(matrix, vectors[state.order], state.form, state.form_error)

    def _branch(self, state: State, spins: Spins, tree: Tree) -> None:
        graph, incumbent = state.graph, state.incumbent

        def room(form: float, error: float) -> float:
            bound = self._bound(state, spins, form, error)
            if bound >= incumbent.energy or incumbent.proven_by(bound):
                return 0.0
            short = incumbent.energy - graph.quantum - spins.bound(form)
            return max(math.ldexp(short, -spins.power), 1e-300)

        found = tree.step(room, state.context, split=spins.n <= self.exact)
        if found is not None:
            whole = np.ones(spins.count, np.int8)
            whole[state.order] = found
            incumbent.offer(spins.labels(whole))
        if tree.current is not None and tree.current.rounds == 1:
            self._round_node(state, spins, tree)
        state.bound = max(state.bound, self._bound(state, spins, *tree.lowest()))
        state.done = tree.done

    def _round_node(self, state: State, spins: Spins, tree: Tree) -> None:
        """Labellings from the vectors of a node: fixed spins have the vector of the reference, or its opposite."""
        assert tree.current is not None
        node = tree.current.node
        vectors = np.empty((spins.count, node.vectors.shape[1]))
        here = np.outer(node.spins.astype(np.float64), tree.current.vectors[0])
        here[node.free] = tree.current.vectors[1:]
        vectors[state.order] = here
        self._round(state, vectors)

    def finish(self, state: State) -> Final:
        note = f"{state.sweeps} sweeps"
        if state.tree is not None:
            note += f", {state.tree.nodes} node{'s' * (state.tree.nodes != 1)} of the tree"
        return Final(labels=state.incumbent.wide_labels, bound=state.bound, note=note)
