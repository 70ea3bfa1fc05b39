"""No bound is ever above the optimum, and OPTIMAL and INFEASIBLE are never wrong: thousands of random models."""

from __future__ import annotations

import numpy as np
import pytest

import tightmap as tm
from problems import random_model
from region_oracles import all_energies
from tightmap.registry import METHODS, solver_class

BOUNDING = [name for name in METHODS if solver_class(name).capabilities.bounds and name != "auto"]
OPTIONS = {
    "srmp": [
        {},
        {"edges": "minimal"},
        {"clusters": "pairs"},
        {"clusters": "triplets"},
        {"clusters": "cycles"},
        {"clusters": "singletons"},
    ],
    "ad3": [{}, {"exact": True}, {"absorb": False}],
    "mplp-c": [{"first": 5, "inner": 3}, {"first": 5, "inner": 3, "updates": "srmp"}],
    "subgradient": [{}, {"steps": "diminishing", "sweeps": 2, "decomposition": "chains"}],
    "bundle": [{"sweeps": 0}, {"sweeps": 0, "variant": "proximal", "planes": 3}, {"sweeps": 2, "planes": 3}],
}
MODELS = 2400  # per run, shared out over the methods


def check(model, result):
    best = all_energies(model).min()
    slack = 1e-9 * max(1.0, abs(best)) if np.isfinite(best) else 0.0
    if result.status is tm.Status.INFEASIBLE:
        assert np.isinf(best)
        return
    assert result.lower_bound <= best + slack
    if np.isfinite(result.energy):
        assert result.energy >= best - slack
    if result.status is tm.Status.OPTIMAL:
        assert result.energy == pytest.approx(best, rel=1e-9, abs=1e-9)
    elif np.isfinite(result.energy):  # OPTIMAL exactly when the bound meets the energy
        assert result.lower_bound < result.energy


@pytest.mark.parametrize("method", BOUNDING)
def test_bounds_of_random_models(method):
    able = solver_class(method).capabilities
    order = min(4, able.largest_order or 4)
    variants = OPTIONS.get(method, [{}])
    done = refused = 0
    for seed in range(MODELS // len(BOUNDING) + 1):
        rng = np.random.default_rng(seed)
        model = random_model(
            rng,
            n=int(rng.integers(1, 6)),
            labels=int(rng.integers(2, 4)),
            factors=int(rng.integers(0, 8)),
            order=order,
            hard=0.2 if seed % 3 == 0 else 0.0,
            integral=seed % 2 == 0,
        )
        try:
            result = tm.solve(model, method, max_iterations=12, **variants[seed % len(variants)])
        except tm.ModelError:  # a method that takes binary, metric or submodular models only
            refused += 1
            continue
        check(model, result)
        done += 1
    assert done + refused == MODELS // len(BOUNDING) + 1 and done > 0
    if able.words() in ("any model", "pairwise"):
        assert refused == 0
