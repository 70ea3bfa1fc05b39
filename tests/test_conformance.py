"""Every registered method, every awkward model: the same promises for all."""

from __future__ import annotations

import numpy as np
import pytest

import tightmap as tm
from naive import brute_force
from problems import grid_model, random_model, tree_model
from tightmap.registry import METHODS, solver_class


def awkward_models():
    """Name -> model, small enough for brute force."""
    out = {"empty": tm.Model([])}
    ones = tm.Model([1, 1])
    ones.add_factors([[0, 1]], [[3.0]])
    out["one label each"] = ones
    unary = tm.Model([2, 3])
    unary.add_unaries([[1.0, 0.0], [2.0, 1.0, 0.5]])
    out["unaries only"] = unary
    mixed = tm.Model([1, 3, 2, 1])
    mixed.add_unaries([[0.5], [1.0, 0.0, 2.0], [0.0, 1.0], [0.0]])
    mixed.add_factors([[2, 1]], np.arange(6.0).reshape(2, 3))
    mixed.add_factors([[0, 1, 2, 3]], np.array([[5.0, 1.0], [0.0, 2.0], [1.0, 1.0]]).reshape(1, 3, 2, 1))
    out["one-label variables, unsorted scopes"] = mixed
    shared = tm.Model.grid(2, 4, 3)
    rng = np.random.default_rng(2)
    shared.add_unaries(rng.normal(size=(8, 3)))
    shared.add_factors(shared.edges(), rng.normal(size=(3, 3)))
    out["shared table"] = shared
    hard = tm.Model([3, 3, 3])
    hard.add_unaries(np.array([[0.0, 1.0, 2.0]] * 3))
    hard.add_factors([[0, 1], [1, 2], [0, 2]], np.where(np.eye(3) > 0, np.inf, 0.0))
    out["all different"] = hard
    for order in (2, 3, 4):
        for inf in (0.0, 0.1):
            r = np.random.default_rng(10 * order + int(inf > 0))
            model = random_model(r, n=6, labels=3, factors=8, order=order, hard=inf)
            out[f"order {order}{' with inf' if inf else ''}"] = model
    out["tree"] = tree_model(np.random.default_rng(3), n=8)
    out["grid"] = grid_model(np.random.default_rng(4), 3, 4, 2)
    out["binary grid"] = grid_model(np.random.default_rng(5), 3, 5, 2, "linear")
    return out


MODELS = awkward_models()
OPTIMA = {name: brute_force(model)[0] for name, model in MODELS.items()}


def run(method, model, **kwargs):
    """Solve, or skip where the method says in words that the model is not for it."""
    try:
        return tm.solve(model, method, **({"max_iterations": 60, "time_limit": 20.0} | kwargs))
    except tm.ModelError as error:
        assert repr(method) in str(error) or method in str(error)
        pytest.skip(str(error))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("method", METHODS)
def test_promises(method, name):
    model = MODELS[name]
    result = run(method, model)
    optimum = OPTIMA[name]
    tiny = 1e-9 * max(1.0, abs(optimum)) if np.isfinite(optimum) else 0.0
    assert result.labels.shape == (model.num_variables,)
    assert result.energy == model.energy(result.labels)
    assert result.feasible == np.isfinite(result.energy)
    assert result.energy >= optimum - tiny
    assert result.lower_bound <= optimum + tiny
    if not solver_class(method).gives_bound and model.graph().m:
        assert result.lower_bound == -np.inf or result.status is tm.Status.OPTIMAL
    if result.status is tm.Status.OPTIMAL:
        assert result.energy == pytest.approx(optimum, rel=1e-8, abs=1e-8)
    if result.status is tm.Status.INFEASIBLE:
        assert optimum == np.inf
    again = run(method, model)
    assert (again.labels == result.labels).all() and again.energy == result.energy


@pytest.mark.parametrize("method", METHODS)
def test_threads_do_not_change_the_answer(method):
    rng = np.random.default_rng(7)
    model = grid_model(rng, 12, 13, 2, "potts")
    one = run(method, model, threads=1, max_iterations=30, time_limit=None)
    two = run(method, model, threads=2, max_iterations=30, time_limit=None)
    assert (one.labels == two.labels).all()
    assert one.lower_bound == two.lower_bound


@pytest.mark.parametrize("method", METHODS)
def test_no_time_still_gives_an_answer(method):
    model = grid_model(np.random.default_rng(8), 6, 6, 2, "potts")
    result = run(method, model, time_limit=0.0, max_iterations=None)
    assert result.status is tm.Status.TIME_LIMIT
    assert np.isfinite(result.energy) and result.iterations == 0
    none = run(method, model, max_iterations=0, time_limit=None)
    assert none.status is tm.Status.ITERATION_LIMIT and none.iterations == 0


@pytest.mark.parametrize("method", METHODS)
def test_warm_starts_never_lose(method):
    model = grid_model(np.random.default_rng(9), 6, 7, 2, "potts")
    first = run(method, model)
    good = np.array(first.labels)
    assert run(method, model, init=good).energy <= first.energy
    assert run(method, model, init=first).energy <= first.energy
    relaxed = np.full((model.num_variables, 2), 0.5)
    assert np.isfinite(run(method, model, init=relaxed).energy)


@pytest.mark.parametrize("method", METHODS)
def test_the_callback_sees_and_stops(method):
    model = grid_model(np.random.default_rng(11), 8, 8, 2, "potts")
    seen = []

    def watch(info):
        seen.append((info.iteration, info.elapsed, info.energy, info.lower_bound, info.labels.copy()))
        return len(seen) >= 2

    result = run(method, model, callback=watch, trace=True)
    assert 1 <= len(seen) <= 2
    assert result.energy <= seen[-1][2]
    assert model.energy(seen[-1][4]) == pytest.approx(seen[-1][2])
    assert len(result.trace) == len(seen)
    assert {"iteration", "elapsed", "energy", "lower_bound"} <= set(result.trace[0])
    if len(seen) == 2 and result.status is not tm.Status.OPTIMAL:
        assert result.status in (tm.Status.INTERRUPTED, tm.Status.CONVERGED)
