"""Which methods ``auto`` runs on a model, in which order and why: by the structure of the model alone.

small induced width                  exact       by eliminating variables, at once
labels that are only names           multicut    partitions; nothing else where there are labels enough
binary variables, pairwise           qpbo        exact when the model is submodular
the same, dense                      sdp         the semidefinite bound, and branch and bound with it
pairwise                             trws        the bound, and often the proof; exact on forests
Potts and other label differences    expansion   good on images, best from where trws has got to
tables that are nearly metrics       expansion   the same
other irregular pairs                combilp     the same bound, and search on the labels that it cannot fix
higher order                         srmp        the bound for any order
sparse pairs, many labels in all     combilp     when trws rises no more: exact search on the cores that it leaves
tables not too large                 exact       branch and bound, which often ends with the proof
grids of few labels                  srmp        with squares, when trws rises no more: a better bound
other tables, not too large          mplp-c      tightens the bound by clusters, where there is no semidefinite one
any but the largest                  lns         exact moves over subgraphs: strong labellings of sparse graphs
the same, hard constraints above all chains      changes with all that follows from them
few labels in all                    annealing, tabu    single changes, first on dense graphs; tabu on binary ones
higher order                         fusion      moves between whole labellings
always                               admm        the nonconvex relaxation
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tightmap.graph.graph import Graph, Kind
from tightmap.graph.stencil import grid_width
from tightmap.solvers.auto.triangles import met_triangles
from tightmap.solvers.exact.elimination import narrow
from tightmap.solvers.exact.network import table_entries
from tightmap.solvers.multicut.problem import enough_labels, suits

# How large a model may be for a method to take part; "labels" are those of all variables together.
TIGHTEN = 20_000  # labels, for mplp-c, which adds clusters to tighten the bound
PIXELS = 100_000  # labels, for srmp with the squares of a grid
SQUARES = 8  # labels of one variable, for the same: the table of a square has the fourth power of that many entries
# Logarithm to base 2 of the number of labellings up to which the proof has most of the time when nobody finds a better
# labelling.  In 3 s on seeds 1 and 2, exact alone and auto before that: queens (75) proven after 1.8 and 3.0 s, not;
# cliques (120) 1.1 and 1.4 s, not; crosswords (100) 1.8 and 2.3 s, 2.2 s and not.  Not proven by exact
# alone: proteins (145), whose bound was 9 % lower with this rule, colourings (180), random CSPs (360).
BITS = 128
FEW = 100  # variables of a dense graph up to which the exact search has its full weight
TABU = 10_000  # labels, for tabu search, which scans all of them at every step
FLIPS = 60_000  # the same of a dense model of two labels, whose populations of spins scan less (handwritten characters
# of 5625 pixels in 20 s, by methods alone: tabu -15501.1 after 4 s, annealing -15500.6)
SPINS = 2000  # variables, for the semidefinite relaxation, which factorises a dense matrix of them for every bound
ROUNDS = ((100, 400), (SPINS, 60))  # without a time limit: variables, and rounds of the same up to there
TREE = 300  # variables up to which that goes on to branch, and is the best hope of a proof
CORES = 5000  # labels of a sparse pairwise model from which on the cores of trws are searched, not the whole model
FIXING = 60_000  # labels, for the search on what is left when labels are fixed by the messages of the bound
ENTRIES = 50_000_000  # of all tables, for the same
EXACT = 20_000  # labels, for the exact search
FACTORS = 50_000  # factors, for the exact search
NARROW = (18.0, 20.0, 100_000)  # elimination alone: log2 of its largest table and of all, effort to find an order
HOPE = (24.0, 26.0, 10_000_000)  # the same where the search itself has no chance; tens of milliseconds
ANNEAL = 100_000  # labels, for simulated annealing
LARGE = 4_000_000  # labels; on larger models methods run one after the other instead of taking turns
TRIANGLES = 0.75  # part of the triangles of labels that hold, for cuts: between chance, 0.5, and metrics, 1
JOINING = 0.05  # part of the weights that speak for equal labels, without which colouring is all there is to do
COLOURS = 4  # labels that are enough to colour the parts of most sparse graphs, as of every planar one
STIFF = 0.5  # part of the entries of hard tables that are forbidden, from which on single changes are of little use
# Seconds per million labels until a method has made its first step there, roughly: what would not fit is left out.
# Cuts need the list of edges, which a large image does not have yet.
ONE_CUT = "one cut"  # of a model of two labels that is nothing else
STARTS = {
    "multicut": 0.02,
    "trws": 0.03,
    ONE_CUT: 0.15,
    "expansion": 0.4,
    "admm": 0.4,
    "srmp": 0.5,
    "fusion": 0.5,
    "qpbo": 0.6,
}
DENSE = 4  # a graph with more factors per variable than this is dense
# Iterations of the first turns of exact and mplp-c without a time limit, about the same time on matching0, which exact
# alone proves after 6.4 s and mplp-c after 0.6; every later turn is twice as long.
GLANCE = (5, 100)
# Seconds that the exact search takes to prepare a table entry and a factor, about: where that is little beside the time
# limit, it has a moment before all others.  zebra 36 -> 4 ms, celar6sub0 71 -> 34, 1aho 73 -> 39, points-1 76 -> 35 of
# 20 s, one thread; a grid of 7000 pairs, which trws proves, took 0.3 s longer where the number of factors did not count
ENTRY, FACTOR = 5e-8, 4e-5
# Variables of a clustering up to which the exact search is there as well: bounds of partitions are sums of all costs,
# and where these differ by a factor of 1e15 such a sum proves nothing of the small ones
TINY = 8
ENDLESS = 10**9  # cycles or rounds of a search that only the time limit ends


@dataclass(frozen=True)
class Phase:
    """One method, its options, the weight of its claim on the time, and why it is there."""

    method: str
    why: str
    weight: float
    options: dict[str, Any] = field(default_factory=dict)
    max_iterations: int | None = None  # without a time limit
    turn: int | None = None  # iterations of its first turn without a time limit, where it shares the work with the next
    endless: dict[str, Any] = field(default_factory=dict)  # options with a time limit: do not stop before
    search: bool = False  # worth repeating with another seed
    again: bool = False  # worth repeating from a better labelling
    early: bool = False  # the very first turn is its own: a good labelling at once, which the others start from
    prepare: float = math.inf  # seconds before its first step, if it is to have a moment before all others
    closes: bool = False  # the model is so small that it should have much of the time once nobody finds better labels
    whole: bool = False  # its first turn does not end before its first iteration does
    follows: str = ""  # method that ends when this one begins, and leaves it its messages


def forbidden(graph: Graph) -> float:
    """The part of its entries that a table with hard constraints forbids, on average over these tables."""
    g = graph.arrays
    if graph.params_hard is None:
        return 0.0
    factors = np.flatnonzero(g.kind == Kind.DENSE)
    sizes = np.multiply.reduceat(g.cards[g.scope].astype(np.int64), g.scope_start[:-1])[factors]
    before = np.concatenate(([0], np.cumsum(graph.params_hard)))
    share = (before[g.param[factors] + sizes] - before[g.param[factors]]) / sizes
    share = share[share > 0.0]
    return float(share.mean()) if len(share) else 1.0  # lists of exceptions: equalities and the like


def partition_phases(graph: Graph, dense: bool) -> list[Phase]:
    """Where labels are only names: the search over partitions, first of all if its parts can be coloured."""
    if not suits(graph):
        return []
    weight = graph.arrays.weight
    if graph.max_labels < graph.n and weight[weight > 0.0].sum() < JOINING * np.abs(weight).sum():
        return []
    coloured = graph.max_labels >= graph.n or (graph.max_labels >= COLOURS and not dense)
    endless = {"shakes": ENDLESS, "nodes": ENDLESS}
    share = 12.0 if coloured else 1.0
    return [Phase("multicut", "labels are only names: partitions", share, endless=endless, early=coloured)]


def plan(graph: Graph) -> list[Phase]:
    """The phases for a model, by its structure alone."""
    pairwise = graph.order <= 2
    dense = graph.m > DENSE * graph.n
    labels = len(graph.unary)
    differences = graph.differences
    parts = partition_phases(graph, dense) if graph.max_labels > 2 and not differences else []
    if parts and enough_labels(graph.n, graph.max_labels, graph.m * (1 if pairwise else 3)):
        if graph.n <= TINY:
            parts.append(Phase("exact", "a handful of variables: branch and bound", 1.0))
        return parts
    cuts = differences or (pairwise and graph.max_labels > 2 and met_triangles(graph) >= TRIANGLES)
    phases = parts
    if pairwise and graph.max_labels == 2:
        phases.append(Phase("qpbo", "binary variables", 2.0, {"improve": 0}))
    spins = pairwise and graph.max_labels == 2 and dense and graph.n <= SPINS
    if spins:
        rounds = next(most for size, most in ROUNDS if graph.n <= size)
        weight = 12.0 if graph.n <= TREE else 4.0
        if graph.hard > 0.0:  # cliques of 120 vertices: proven by exact in 1.1 s, by sdp not in 3
            spins, weight = False, 2.0
        phases.append(Phase("sdp", "binary and dense: the semidefinite bound", weight, max_iterations=rounds))
    sparse = pairwise and not dense and CORES <= labels <= LARGE
    # where labels can be fixed by the messages of the bound, what is left of the model may be proven at once
    irregular = pairwise and not sparse and not differences and labels <= FIXING and graph.m <= FACTORS
    irregular = irregular and grid_width(graph) is None and table_entries(graph).sum() <= ENTRIES
    dual = "combilp" if irregular else "trws"
    if pairwise:
        weight = 4.0 if cuts else 1.0
        pair = [Phase("trws", "the bound", weight, max_iterations=1000)]
        if dual == "combilp":
            why = "the bound, and the search on the labels that it leaves"
            pair = [Phase(dual, why, weight, {"cores": False}, max_iterations=1000, again=True)]
        if cuts and graph.max_labels > 2:
            why = "differences of labels with non-negative weights" if differences else "tables that are nearly metrics"
            moves = Phase("expansion", why, 4.0, again=True, whole=not differences)
            # venus in 3 s on one thread: trws 3.07 million, expansion 11.3, whose first moves are its longest;
            # on a photomontage an iteration of trws takes longer than a move and brings little
            pair.insert(1 if differences and labels > ANNEAL else 0, moves)
        phases += pair
        # alone it proves ring N8 and tsukuba in 4 to 6 s on one thread
        if sparse:
            why = "sparse: exact search on the cores that trws leaves"
            fixing = not differences and grid_width(graph) is None  # in images too many labels are alike
            phases.append(Phase("combilp", why, 1.0, {"fixing": fixing}, max_iterations=300, follows="trws"))
    else:
        # On images of higher order nothing else gets anywhere in the time that their bound and their moves need
        image = labels > ANNEAL
        phases.append(
            Phase("srmp", "higher-order factors: bound and labelling", 4.0 if image else 2.0, max_iterations=500)
        )
        if image:
            phases.append(Phase("fusion", "moves between whole labellings", 4.0, again=True))
    if labels <= EXACT and graph.m <= FACTORS:
        prepare = math.inf if spins else ENTRY * float(table_entries(graph).sum()) + FACTOR * graph.m
        if narrow(graph, *NARROW):
            phases.insert(0, Phase("exact", "small induced width: elimination", 8.0, prepare=prepare))
        # of a large model with the semidefinite bound only elimination proves anything: G14 in 20 s, 5.7 s of search
        elif not (spins and graph.n > TREE) or narrow(graph, *HOPE):
            weight = 2.0 if spins or (dense and graph.n > FEW) else 6.0
            why = "tables not too large: branch and bound"
            closes = not spins and float(np.log2(graph.arrays.cards).sum()) <= BITS
            options: dict[str, Any] = {"max_iterations": 100, "turn": GLANCE[0], "prepare": prepare, "closes": closes}
            phases.append(Phase("exact", why, weight, **options))
    small = pairwise and graph.max_labels <= SQUARES and labels <= PIXELS
    if small and grid_width(graph) is not None:
        why = "a grid of few labels: squares tighten the bound"
        phases.append(Phase("srmp", why, 1.0, {"clusters": "squares"}, max_iterations=100, follows=dual))
    # beside the semidefinite bound clusters have nothing to add: G14 in 20 s, 5.8 s of them, and one cut less
    elif not differences and labels <= TIGHTEN and not spins:
        follows = dual if pairwise else "srmp"
        why, options = "clusters tighten the bound", {"updates": "srmp"}
        phases.append(Phase("mplp-c", why, 1.0, options, turn=GLANCE[1], follows=follows))
    search = []
    # Single changes get nowhere between tight constraints of a sparse graph: pedigree40 in 6 s, annealing 417, lns 301;
    # they do between loose ones: random tables with 15 % forbidden in 3 s, lns 11738, annealing 11193
    stiff = not dense and not cuts and forbidden(graph) >= STIFF
    if labels <= LARGE:
        weight = 1.0 if dense or cuts or (not pairwise and labels > ANNEAL) else 4.0
        search.append(Phase("lns", "exact moves over subgraphs", weight, endless={"cycles": ENDLESS}, early=stiff))
    flips = pairwise and graph.max_labels == 2 and not differences and labels <= (FLIPS if dense else TABU)
    # Beside hard constraints chains are the strongest search.  In 3 s, seed 1, chains and the best of annealing, lns,
    # tabu: tracking -7103, -6731; jobs 263, 270; 200 sites 24545, 29778; random CSP 12257, 12472; labs 550, 542.  On
    # soft models they are about as good as annealing (surfaces 494.3, 492.2; clauses 28, 28; dynamic net 230.3, 244.1)
    hard = graph.hard > 0.0
    if labels <= ANNEAL and (hard or not flips):
        soft = 1.0 if cuts else 2.0
        weight, why = 4.0 if hard and not stiff else soft, "changes and what follows from them"
        early = hard and not stiff
        search.append(Phase("chains", why, weight, endless={"cycles": ENDLESS}, early=early))
    if labels <= ANNEAL:
        weight, why = 1.0 if cuts or flips or hard else 3.0, "small enough for single changes"
        early = not cuts and not flips and not hard
        search.append(Phase("annealing", why, weight, endless={"cycles": ENDLESS}, early=early))
    if labels <= TABU or flips:
        weight, why = 4.0 if dense else 1.0, "small enough to scan all changes"
        if flips:  # in 30 s on G14 it reached a cut of 3064, annealing one of 3063
            # where nothing goes on to branch it is the main search: fields of decision trees, 4800 pixels
            weight, why = 2.0 if spins and graph.n <= TREE else 6.0, "a population of spins"
        search.append(Phase("tabu", why, weight, endless={"rounds": ENDLESS}, early=flips))
    phases += reversed(search) if dense else search
    if not pairwise and labels <= ANNEAL:
        phases.append(Phase("fusion", "moves between whole labellings", 1.0, again=True))
    weight = 2.0 if pairwise and labels > ANNEAL else 1.0
    phases.append(Phase("admm", "the nonconvex relaxation", weight, search=True))
    return phases
