"""Partitions: models whose labels are only names, against brute force, and how auto treats them."""

import itertools

import numpy as np
import pytest

import tightmap as tm
from tightmap.runtime.random_numbers import start_state
from tightmap.solvers.auto.plan import plan
from tightmap.solvers.multicut.cycles import Relaxation
from tightmap.solvers.multicut.moving import around, begin_from, descend, new_walk, shakes
from tightmap.solvers.multicut.problem import labelling, signed_graph, suits
from tightmap.solvers.multicut.tree import Tree


def random_names(seed, n=None, labels=None, triples=True):
    """Potts weights of both signs, label patterns and agreements of three variables."""
    rng = np.random.default_rng(seed)
    n = n or int(rng.integers(3, 7))
    labels = labels or int(rng.integers(3, n + 1))
    model = tm.Model([labels] * n)
    model.add_constant(float(rng.normal()))
    pairs = np.array([(i, j) for i in range(n) for j in range(i) if rng.random() < 0.8 or i == 1])
    weights = rng.integers(-3, 4, len(pairs)).astype(float) if rng.random() < 0.3 else rng.normal(size=len(pairs))
    model.add_potts(pairs, weights)
    if triples:
        for _ in range(int(rng.integers(0, 5))):
            model.add_label_patterns([rng.choice(n, 3, replace=False)], rng.normal(size=5), [float(rng.normal())])
        if rng.random() < 0.3:
            model.add_pn_potts([rng.choice(n, 3, replace=False)], [float(rng.normal())])
    return model


def least(model):
    return min(model.energy(list(x)) for x in itertools.product(*(range(k) for k in model.cardinalities)))


def planar(n=60, seed=0):
    """Neighbours in the plane, as superpixels are."""
    rng = np.random.default_rng(seed)
    place = rng.random((n, 2))
    far = np.linalg.norm(place[:, None] - place[None], axis=2)
    pairs = np.argwhere(np.triu(far < 1.6 / np.sqrt(n), 1))
    model = tm.Model([n] * n)
    model.add_potts(pairs, rng.normal(0.2, 1.0, len(pairs)))
    return model


@pytest.mark.parametrize("seed", range(40))
def test_optima_of_small_models_are_found_and_proven(seed):
    model = random_names(seed)
    best = least(model)
    for method, options in (("multicut", {"shakes": 1000}), ("auto", {})):
        result = tm.solve(model, method, **options)
        assert result.energy == pytest.approx(best, abs=1e-9), method
        assert result.lower_bound <= best + 1e-9
        # three labels may be too few for the best partition, whose bound then stays below
        if model.cardinalities[0] == model.num_variables or method == "auto":
            assert result.status is tm.Status.OPTIMAL, method


@pytest.mark.parametrize("seed", range(20))
def test_the_partition_problem_has_the_energies_of_the_model(seed):
    model = random_names(seed, 6, 6)
    graph = model.graph()
    problem = signed_graph(graph)
    rng = np.random.default_rng(seed)
    for _ in range(20):
        part = rng.integers(0, 6, 6)
        labels = labelling(problem, part)
        value = problem.value(part) + problem.constant + graph.constant
        assert graph.user_energy(value) == pytest.approx(model.energy(labels), abs=1e-9)
        same = part[:, None] == part[None]
        assert (same == (labels[:, None] == labels[None])).all()


@pytest.mark.parametrize("seed", range(10))
def test_the_search_knows_what_its_moves_save(seed):
    """Sums of savings against the value of the partition, with pairs and triples; nothing is left that would gain."""
    problem = signed_graph(random_names(seed, 12, 12).graph())
    near, walk = around(problem), new_walk(problem, start_state(seed))
    begin_from(walk, np.arange(12))
    value = problem.value(np.arange(12))
    saved, in_time = descend(near, walk, 1e-12, np.inf)
    value -= saved
    assert in_time and value == pytest.approx(problem.value(walk.part[:12]), abs=1e-9)
    for v in range(12):
        for target in range(12):
            other = walk.part[:12].copy()
            other[v] = target
            assert problem.value(other) >= value - 1e-9
    for warmth in (0.0, 1.0):
        made, saved = shakes(near, walk, 1e-12, warmth, 200, np.inf)
        value -= saved
        assert made == 200 and value == pytest.approx(problem.value(walk.part[:12]), abs=1e-9)
        assert (np.bincount(walk.part[:12], minlength=12) == walk.size[:12]).all()
    for p in range(12):
        members, v = [], walk.head[p]
        while v >= 0:
            members.append(v)
            v = walk.next[v]
        assert sorted(members) == np.flatnonzero(walk.part[:12] == p).tolist()


@pytest.mark.parametrize("seed", range(8))
def test_rows_of_the_relaxation_hold_for_every_partition(seed):
    problem = signed_graph(random_names(seed, 6, 6).graph() if seed % 2 else planar(30, seed).graph())
    relaxation = Relaxation(problem)
    for _ in range(12):
        relaxation.separate(np.inf)
        relaxation.solve(20, 5)
    assert len(relaxation.right) > 0 and (relaxation.multiplier >= 0.0).all()
    rng = np.random.default_rng(seed)
    best = np.inf
    for _ in range(300):
        part = rng.integers(0, rng.integers(1, problem.n + 1), problem.n)
        cut = (part[problem.pairs[:, 0]] != part[problem.pairs[:, 1]]).astype(float)
        y = np.concatenate((cut, cut[problem.sides].all(axis=1) if len(problem.sides) else np.zeros(0)))
        left = np.add.reduceat(relaxation.coefficient * y[relaxation.column], relaxation.start[:-1])
        assert (left <= relaxation.right + 1e-12).all()
        best = min(best, problem.value(part))
    raw, error = relaxation.bound()
    assert raw - error <= best


def test_the_bound_of_cycles_meets_the_lp(seed=3):
    """The same rows in HiGHS: the proximal method ends at the optimum of the linear program."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    problem = signed_graph(planar(40, seed).graph())
    relaxation = Relaxation(problem)
    for _ in range(60):
        relaxation.separate(np.inf)
        relaxation.solve(50, 10)
    shape = (len(relaxation.right), len(relaxation.cost))
    rows = csr_array((relaxation.coefficient, relaxation.column, relaxation.start), shape=shape)
    truth = linprog(relaxation.cost, A_ub=rows, b_ub=relaxation.right, bounds=(0.0, 1.0)).fun
    assert relaxation.bound()[0] == pytest.approx(truth, rel=1e-6)
    assert relaxation.bound()[0] <= truth + 1e-6 * abs(truth)


def test_branch_and_bound_proves_what_the_relaxation_leaves_open():
    """Modularity-like weights of all pairs; without stars and the search, so that there is something to branch on."""
    model = random_names(5, 9, 9, triples=False)
    problem = signed_graph(model.graph())
    tree = Tree(problem)
    tree.relaxation._stars = lambda: 0
    best = np.inf
    for _ in range(5000):
        if tree.done:
            break
        rounded = tree.advance(best, np.inf)
        if rounded is not None:
            best = min(best, problem.value(rounded))
    assert tree.done
    truth = tm.solve(model, "exact")
    assert truth.status is tm.Status.OPTIMAL
    graph = model.graph()
    assert graph.user_energy(tree.bound()[0] + problem.constant + graph.constant) == pytest.approx(truth.energy)


def test_a_picture_in_segments_is_proven_and_auto_takes_nothing_else():
    model = planar(150, 1)
    assert [phase.method for phase in plan(model.graph())] == ["multicut"]
    result = tm.solve(model, time_limit=20.0)
    assert result.status is tm.Status.OPTIMAL
    assert result.energy == pytest.approx(model.energy(result.labels))
    assert tm.solve(model, "annealing", time_limit=1.0).energy >= result.energy - 1e-9


def test_few_labels_are_colours_of_the_parts():
    """Four colours are enough for a picture: the energy is that of as many labels as there are variables."""
    model = planar(80, 2)
    few = tm.Model([6] * 80)
    edges = model.graph().edges
    few.add_potts(edges, model.graph().arrays.weight * 2.0 ** -model.graph().power)
    names = [phase.method for phase in plan(few.graph())]
    assert names[0] == "multicut" and "lns" in names
    assert tm.solve(few, time_limit=20.0).energy == pytest.approx(tm.solve(model, time_limit=20.0).energy)


def test_models_whose_labels_mean_something_are_refused():
    model = planar(12)
    assert suits(model.graph())
    model.add_unaries([[0.0] * 11 + [1.0]], [3])
    assert not suits(model.graph())
    with pytest.raises(tm.ModelError, match="only names"):
        tm.solve(model, "multicut")
    assert "multicut" not in [phase.method for phase in plan(model.graph())]
    ordered = tm.Model([5] * 3)
    ordered.add_truncated_linear([[0, 1], [1, 2]], [1.0, -1.0], 2.0)
    mixed = tm.Model([3, 4, 4])
    mixed.add_potts([[0, 1], [1, 2]], [1.0, -1.0])
    table = tm.Model([4] * 3)
    table.add_factors([[0, 1, 2]], np.random.default_rng(0).random((4, 4, 4)))
    for other in (ordered, mixed, table):
        assert not suits(other.graph())
    with pytest.raises(tm.OptionError, match="shakes"):
        tm.solve(planar(12), "multicut", shakes=-1)
