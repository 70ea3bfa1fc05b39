"""A fixed part of the fuzzer, and proof that the fuzzer would notice: every check can fail, crashes are survived."""

from __future__ import annotations

import dataclasses
import runpy
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest

import tightmap as tm
from fuzz import faults
from fuzz.checks import CHECKS, close, holds
from fuzz.models import SHAPES, random_recipe
from fuzz.options import OPTIONS
from fuzz.oracle import Oracle
from fuzz.parent import fuzz
from fuzz.recipe import Recipe, recipe_of
from fuzz.reproducer import Failure
from fuzz.shrink import shrink
from fuzz.sizes import SIZES
from fuzz.trials import KINDS, Broken, Trial, judge
from fuzz.twins import TWINS
from fuzz.worker import Plan, make_case, strictly
from naive import brute_force
from tightmap.registry import ENGINES, METHODS, solver_class, usable_methods

SEED = 0
CASES = 20

FAULTS = {name.lower(): f"{faults.__name__}:{name}" for name in ("Liar", "Crash", "Hang")}


@pytest.mark.parametrize("case", range(CASES))
def test_random_models(case):
    """All methods on one random model, two trials each: python -m tests.fuzz --seed 0 --case <case> does the same."""
    recipe, trials = make_case(Plan(SEED, usable_methods()), case)
    oracle = Oracle(recipe)
    for index, trial in enumerate(trials):
        outcome = strictly(trial, recipe, oracle)
        for broken in outcome.broken:
            failure = Failure(SEED, case, index, trial, recipe, broken)
            pytest.fail(f"seed {SEED}, case {case}, trial {index}\n{failure.script()}", pytrace=False)


def test_every_method_and_option_is_tried():
    assert set(OPTIONS) == {*METHODS, *ENGINES}
    for method, values in OPTIONS.items():
        fields = {f.name: f.default for f in dataclasses.fields(solver_class(method))}
        assert set(values) == set(fields), method
        assert all(fields[name] in choices for name, choices in values.items()), method


# ------------------------------------------------------------------------------------------------- the checks


def facts_of_a_good_run():
    """A run that has all properties: two variables, minimum 1 at labels (0, 1)."""
    model = tm.Model([2, 2])
    model.add_unaries([[0.0, 3.0], [2.0, 1.0]])
    trace = [{"iteration": 1, "energy": 2.0, "lower_bound": 0.0}, {"iteration": 2, "energy": 1.0, "lower_bound": 1.0}]
    result = tm.Result(
        labels=np.array([0, 1]), energy=1.0, lower_bound=1.0, feasible=True, status=tm.Status.OPTIMAL,
        iterations=2, elapsed=0.1, method="bcd", options={}, trace=trace,
    )  # fmt: skip
    seen = [
        SimpleNamespace(iteration=1, elapsed=0.0, energy=2.0, lower_bound=0.0, labels=np.array([0, 0])),
        SimpleNamespace(iteration=2, elapsed=0.1, energy=1.0, lower_bound=1.0, labels=np.array([0, 1])),
    ]
    numbers = {"optimum": 1.0, "rounding": 1e-15, "blur": 1e-15, "tolerance": 1e-9, "slack": 2e-9, "summed": 1.0}
    numbers |= {"start": 2.0, "descent": 1.0, "limit": 2, "factor": 1.0, "shift": 0.0}
    return {"model": model, "result": result, "seen": seen, "before": result, **numbers}


WRONG_RESULTS = {  # check -> what would be wrong in the result
    "labels in range": {"labels": np.array([0, 2])},
    "energy is that of the labels": {"labels": np.array([0, 0])},
    "energy not below the optimum": {"energy": 0.5},
    "energy adds up": {"energy": 1.5},
    "feasible is right": {"feasible": False},
    "bound not above the optimum": {"lower_bound": 1.0 + 4e-15},
    "bound not above the energy": {"lower_bound": 2.0},
    "OPTIMAL is optimal": {"energy": 1.1},
    "INFEASIBLE is infeasible": {"status": tm.Status.INFEASIBLE},
    "iterations within the limit": {"iterations": 3},
    "no time is no time": {"status": tm.Status.CONVERGED},
    "ends by itself": {"status": tm.Status.TIME_LIMIT},
    "proves small models": {"status": tm.Status.CONVERGED},
    "not worse than descent": {"energy": 1.1},
    "result not worse than shown": {"energy": 1.1},
    "result not weaker than shown": {"lower_bound": 0.9},
    "trace is what was shown": {"trace": []},
    "stops when asked": {"status": tm.Status.TIME_LIMIT},
    "not worse than init": {"energy": 2.1},
    "not worse than the run before": {"energy": 1.1},
    "same labels": {"labels": np.array([1, 1])},
    "same bound": {"lower_bound": 0.9},
    "twins agree on the optimum": {"energy": 1.1},
    "twins do not contradict each other": {"status": tm.Status.INFEASIBLE},
    "exact twins have the same status": {"status": tm.Status.CONVERGED},
    "exact twins have the same energy": {"energy": 1.1},
    "part is not better than the whole": {"energy": 0.9},
}
WRONG_SHOWN = {  # check -> what would be wrong in the first thing shown
    "shown bounds not above the optimum": {"lower_bound": 1.1},
    "shown bounds never fall": {"lower_bound": 1.1},
    "shown energies never rise": {"energy": 0.9},
    "shown energies not below the optimum": {"energy": 0.9},
    "shown energies are those of the labels": {"energy": 2.1},
    "iterations go on": {"iteration": 3},
    "clock goes on": {"elapsed": 0.2},
}


def test_every_check_can_fail():
    facts = facts_of_a_good_run()
    assert set(CHECKS) == set(WRONG_RESULTS) | set(WRONG_SHOWN)
    for check in CHECKS:
        assert holds(check, facts), check
    for check, wrong in WRONG_RESULTS.items():
        assert not holds(check, facts | {"result": dataclasses.replace(facts["result"], **wrong)}), check
    for check, wrong in WRONG_SHOWN.items():
        first = SimpleNamespace(**{**vars(facts["seen"][0]), **wrong})
        assert not holds(check, facts | {"seen": [first, facts["seen"][1]]}), check


def test_a_liar_is_caught(monkeypatch):
    for name, place in FAULTS.items():
        monkeypatch.setitem(METHODS, name, place)
    recipe = Recipe([2, 2], [("add_factors", {"scopes": [[0, 1]], "tables": [[1.0, 3.0], [3.0, 0.0]]})])
    broken = {b.check for b in judge(Trial("liar"), recipe).broken}
    assert {"OPTIMAL is optimal", "bound not above the optimum"} <= broken


# ------------------------------------------------------------------------------------------------- models


@pytest.mark.parametrize("shape", SHAPES)
def test_the_oracle_and_the_twins_are_right(shape):
    for seed in range(6):
        rng = np.random.default_rng(seed)
        recipe = SHAPES[shape][1](rng)
        if recipe.states > 1000:
            continue
        oracle = Oracle(recipe)
        model = recipe.build()
        assert close(brute_force(model)[0], oracle.optimum, oracle.blur)
        assert close(Oracle(recipe_of(model)).optimum, oracle.optimum, oracle.blur)
        for name, make in TWINS.items():
            twin = make(recipe, rng)
            energies, others = np.sort(oracle.energies.ravel()), np.sort(Oracle(twin.recipe).energies.ravel())
            if twin.subset:
                others = others[np.isfinite(others)]
                assert len(others) <= len(energies) and set(others) <= set(energies), name
            else:
                size = max(1.0, np.abs(energies).max(initial=0.0, where=np.isfinite(energies)))
                lost = 1e-13 * (abs(twin.factor) * size + abs(twin.shift))
                assert np.allclose(others, twin.factor * energies + twin.shift, rtol=0.0, atol=lost), name


def test_models_are_of_every_kind():
    """A few hundred random models have everything that has ever hidden a defect."""
    recipes = [random_recipe(np.random.default_rng([SEED, case])) for case in range(300)]
    names = {name for recipe in recipes for name, _ in recipe.calls}
    # kinds from outside are lowered to these, and have a suite of their own (test_kinds_from_outside.py)
    assert names == {name for name in dir(tm.Model) if name.startswith("add_")} - {"add_custom"} | {"clamp"}
    oracles = [Oracle(recipe) for recipe in recipes]
    assert any(not recipe.cards for recipe in recipes)
    assert any(max(recipe.cards, default=0) > 255 for recipe in recipes)
    assert any(recipe.grid for recipe in recipes)
    assert any(np.isinf(oracle.optimum) for oracle in oracles)
    assert any(0.0 < oracle.size < 1e-300 for oracle in oracles)
    assert max(len(scope) for oracle in oracles for scope, _ in oracle.terms) == 8
    assert any(oracle.size > 1e280 for oracle in oracles)
    assert any(len(set(scope)) < len(scope) for oracle in oracles for scope, _ in oracle.terms)
    assert all(recipe.states <= 20_000 for recipe in recipes)


def test_small_models_are_treated_as_large_ones():
    """Images without a list of edges, with costs in few bits, and everything else that begins at some size."""
    recipes = [random_recipe(np.random.default_rng([SEED, case])) for case in range(300)]
    assert {size for recipe in recipes for size in recipe.sizes} == set(SIZES)
    seen = set()
    for recipe in recipes:
        if recipe.grid and {"few bits", "no list"} & set(recipe.sizes):
            model = recipe.build()
            graph = model.graph()
            if graph.lattice is not None:
                seen.add((model.single, graph.unlisted))
    assert seen == {(True, True), (True, False), (False, True)}
    Recipe([2]).build()  # as it was
    for group in SIZES.values():
        assert all(getattr(import_module(module), name) != value for module, name, value in group)


@pytest.mark.parametrize("size", SIZES)
def test_reproducers_treat_their_model_so_too(size):
    recipe = Recipe([2] * 9, [("add_unaries", {"costs": [[0.0, 1.0]] * 9})], (3, 3), (size,))
    try:
        found = {"np": np, "tm": tm}
        exec(recipe.source(), found)
        assert all(getattr(import_module(module), name) == value for module, name, value in SIZES[size])
        assert found["model"].single == (size == "few bits")
    finally:
        Recipe([2]).build()


# ------------------------------------------------------------------------------------------------- failures


def test_shrinking_keeps_what_fails():
    recipe, _ = make_case(Plan(SEED, ["bcd"]), 3)
    recipe = recipe.with_calls([*recipe.calls, ("add_unaries", {"costs": [[7.5] * recipe.cards[0]], "nodes": [0]})])
    trial = Trial("bcd", options={"order": "random"}, arguments={"seed": 5})

    def failing(trial, smaller):
        smaller.build()
        return any((table == 7.5).any() for _, table in Oracle(smaller).terms)

    trial, small = shrink(trial, recipe, failing, seconds=60.0)
    assert small.cards == [1] and small.calls == [("add_unaries", {"costs": [[7.5]], "nodes": [0]})]
    assert not trial.options and not trial.arguments


@pytest.mark.parametrize("kind", [*KINDS, *TWINS])
def test_reproducers_show_what_failed(kind, tmp_path):
    """A run of no iterations does not end by itself: a true failure of a check that is not due."""
    table = [[0.0, 3.0], [2.0, 0.0]]
    recipe = Recipe([2, 2, 2], [("add_factors", {"scopes": [[0, 1], [1, 2], [0, 2]], "tables": table})])
    trial = Trial("bcd", kind, {"max_iterations": 0}, {"order": "random"}, other="bcd")
    path = tmp_path / "reproducer.py"
    path.write_text(Failure(0, 1, 2, trial, recipe, Broken("ends by itself", "")).script())
    with pytest.raises(AssertionError):
        runpy.run_path(str(path))
    path.write_text(Failure(0, 1, 2, trial, recipe, Broken("energy adds up", "")).script())
    runpy.run_path(str(path))


def test_crashes_and_hangs_are_survived(tmp_path):
    plan = Plan(SEED, ["crash", "hang", "liar"], trials=1, shrink_seconds=0.0, extra=FAULTS)
    case = next(c for c in range(200) if _runs(plan, c))
    summary = fuzz(plan, tmp_path, iter([case]), processes=1, hang=3.0)
    assert summary.cases == 1 and summary.trials == {"crash": 1, "hang": 1, "liar": 1}
    assert summary.failures["crash", "survives"] == summary.failures["hang", "survives"] == 1
    scripts = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert any(name.startswith("crash") and "-11" in text for name, text in scripts.items())
    assert any(name.startswith("hang") and "driver.py" in text for name, text in scripts.items())


def _runs(plan, case):
    """Is this a case in which all methods get to work?"""
    recipe, trials = make_case(plan, case)
    limits = [t.arguments for t in trials if "time_limit" in t.arguments or t.arguments.get("max_iterations") == 0]
    return recipe.build().graph().m > 0 and not limits
