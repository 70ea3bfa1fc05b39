"""The reference ADMM: the updates against the Lagrangian, the fast sweeps, brute force and an energy in the paper."""

from __future__ import annotations

import numpy as np
import pytest

import tightmap as tm
from conftest import data_file
from naive import graph_tables, labellings
from problems import grid_model
from tightmap.factors.kernels import workspace
from tightmap.reference.admm import admm, centre, disagreement, linear_term, sweep
from tightmap.reference.bcd import bcd
from tightmap.reference.brute_force import brute_force
from tightmap.reference.dense import tables
from tightmap.runtime import parallel
from tightmap.solvers.admm.general import general_state, general_sweeps
from tightmap.solvers.admm.updates import DECOMPOSITIONS, Form


@pytest.fixture(autouse=True)
def one_thread():
    """Models this small are done before a second thread has woken up."""
    with parallel.using(1):
        yield


def small_model(order, seed=0):
    """Five variables of three labels, factors of every order up to the given one, scopes in any order."""
    rng = np.random.default_rng(seed)
    model = tm.Model([3] * 5)
    model.add_unaries(rng.normal(size=(5, 3)))
    for k in range(2, order + 1):
        for _ in range(3):
            model.add_factors([rng.permutation(5)[:k]], rng.normal(size=(3,) * k))
    return model


def augmented_lagrangian(t, x, y, rho, decomposition, symmetrize):
    """(27), with F of (20) as a sum over cliques, rotations and labellings."""
    copies = len(x)
    total = t.unary @ x[0]
    for scopes, costs, _ in t.groups:
        for scope, table in zip(scopes, costs, strict=True):
            for turn in range(copies if symmetrize else 1):
                for labels in labellings(table.shape):
                    vectors = [x[(q + turn) % copies, t.offset[i] + labels[q]] for q, i in enumerate(scope)]
                    total += table[labels] * np.prod(vectors) / (copies if symmetrize else 1)
    gaps = disagreement(decomposition, x)
    return total + (y * gaps).sum() + rho / 2 * (gaps**2).sum()


@pytest.mark.parametrize("decomposition", DECOMPOSITIONS)
@pytest.mark.parametrize("order, symmetrize", [(2, False), (2, True), (3, False), (4, True)])
def test_centres_minimise_the_lagrangian(decomposition, order, symmetrize):
    """It is quadratic in a copy, so at its minimiser symmetric differences vanish, whatever their width."""
    t = tables(small_model(order, seed=order))
    rng = np.random.default_rng(7)
    x, y, rho = rng.random((order, 15)), rng.normal(size=(order, 15)), 0.7
    if decomposition != "symmetric":
        y[0] = 0.0
    for d in range(order):
        at = x.copy()
        at[d] = centre(decomposition, x, y, linear_term(t, x, d, symmetrize), d, rho)
        for s in rng.permutation(15)[:4]:
            sides = [at.copy(), at.copy()]
            sides[0][d, s] += 0.5
            sides[1][d, s] -= 0.5
            up, down = (augmented_lagrangian(t, z, y, rho, decomposition, symmetrize) for z in sides)
            assert up == pytest.approx(down, abs=1e-8)
            assert up > augmented_lagrangian(t, at, y, rho, decomposition, symmetrize)


@pytest.mark.parametrize("symmetrize", [False, True])
@pytest.mark.parametrize("order", [2, 3, 4])
def test_linear_terms_of_equal_copies_add_up_to_the_gradient(order, symmetrize):
    """(78) of the supplement."""
    t = tables(small_model(order))
    x = np.random.default_rng(2).random(15)
    terms = [linear_term(t, np.tile(x, (order, 1)), d, symmetrize) for d in range(order)]
    np.testing.assert_allclose(sum(terms), t.gradient(x), atol=1e-12)


@pytest.mark.parametrize("decomposition", DECOMPOSITIONS)
@pytest.mark.parametrize("order, symmetrize", [(2, False), (2, True), (3, True), (4, False)])
def test_fast_iterates_are_those_of_the_reference(decomposition, order, symmetrize):
    graph = small_model(order, seed=5 + order).graph()
    g, t = graph.arrays, graph_tables(graph)
    form = Form(order, DECOMPOSITIONS[decomposition], symmetrize, False, False, 1.0)
    state = general_state(g, form)
    state.x[:] = 1.0 / 3.0
    x, y = np.full((order, 15), 1.0 / 3.0), np.zeros((order, 15))
    for rho in (0.4, 0.9, 2.5):
        fast, _ = general_sweeps(g, form, state, rho, 0.0, 5, True, workspace(g), np.inf)
        for _ in range(5):
            residual = sweep(t, x, y, rho, decomposition, symmetrize, "nonnegative" if order == 2 else "box")
        np.testing.assert_allclose(state.x.reshape(order, -1), x, atol=1e-9)
        np.testing.assert_allclose(state.y.reshape(order, -1), y, atol=1e-8)
        assert fast == pytest.approx(residual, rel=1e-6)


@pytest.mark.parametrize("decomposition", DECOMPOSITIONS)
@pytest.mark.parametrize("symmetrize", [False, True])
def test_copies_that_agree_are_stationary(decomposition, symmetrize):
    """Propositions 3 and 4: where the residual vanishes, no vertex is a descent direction of E."""
    t = tables(small_model(3, seed=4))
    x, y = np.full((3, 15), 1.0 / 3.0), np.zeros((3, 15))
    for rho in (0.3, 0.6, 1.2, 2.4, 4.8, 9.6, 19.2):
        for _ in range(150):
            residual = sweep(t, x, y, rho * t.scale, decomposition, symmetrize, "box")
    assert residual < 1e-12
    slope = t.gradient(x[0])
    assert slope @ (x[0] - t.one_hot(t.argmin(slope))) < 1e-5 * t.scale


@pytest.mark.parametrize("decomposition", DECOMPOSITIONS)
def test_symmetrised_admm_finds_optima_that_descent_misses(decomposition):
    descent = 0
    for seed in range(8):
        model = grid_model(np.random.default_rng(seed), 3, 3, 3, "potts")
        labels, energy, _ = admm(model, 2000, 0.01, decomposition, symmetrize=True, wait=(40, 40))
        optimum = brute_force(model).energy
        assert energy == optimum == model.energy(labels)
        descent += bcd(model).energy == optimum
    assert descent < 8


def test_penalty_waits_and_grows():
    """I_1 iterations at rho_0, then factors of 1.2 up to the largest, at least I_2 apart; costs in any unit."""
    model = grid_model(np.random.default_rng(1), 3, 3, 3, "dense", integral=False)
    t = tables(model)
    trace = admm(model, 200, 0.01, wait=(30, 7), growth=1.2, rho_max=0.02, tolerance=0.0).trace
    rho = np.array([row["rho"] for row in trace]) / t.scale
    assert (rho[:30] == pytest.approx(0.01)) and rho.max() == pytest.approx(0.02)
    grown = np.flatnonzero(np.diff(rho)) + 1
    assert len(grown) == 4 and (np.diff(grown) >= 7).all()
    assert rho[grown[:-1]] / rho[grown[:-1] - 1] == pytest.approx(1.2)


def test_admm_of_unaries_and_of_hard_constraints():
    model = tm.Model([3, 2])
    model.add_unaries([[3.0, 1.0, 2.0], [0.0, 5.0]])
    assert admm(model, 400).labels.tolist() == [1, 0]
    model.add_factors([[0, 1]], [[0.0, 0.0], [np.inf, 9.0], [np.inf, 1.0]])
    labels, energy, _ = admm(model, 2000, 0.01, wait=(50, 50))
    assert labels.tolist() == [0, 0] and energy == 3.0


def test_wrong_options_are_named():
    model = small_model(2)
    with pytest.raises(tm.OptionError, match="ring"):
        admm(model, decomposition="ring")
    with pytest.raises(tm.OptionError, match="ball"):
        admm(model, sets="ball")


@pytest.mark.data
@pytest.mark.slow
def test_admm_reaches_the_energy_in_the_paper():
    """Inpainting, 120 x 120 pixels, four labels: 424.12 with the paper's parameters and both orders of every edge."""
    model = tm.read(data_file("inpainting/n4-triplepoint4-plain-ring-inverse.h5"))
    labels, energy, _ = admm(model, 1500, symmetrize=True)
    assert round(energy, 2) == 424.12
    assert model.energy(labels) == pytest.approx(energy)
