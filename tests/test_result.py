"""Result: equality, hashing, copies, and what it says about gaps."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest

import tightmap as tm
from problems import grid_model


@pytest.fixture(scope="module")
def model():
    return grid_model(np.random.default_rng(0), 5, 5, 3)


@pytest.fixture(scope="module")
def result(model):
    return tm.solve(model, "bcd", trace=True)


def test_equal_results_say_the_same(model, result):
    again = tm.solve(model, "bcd")
    assert (result == again) is True and (result != again) is False  # though times and traces differ
    assert hash(result) == hash(again) and len({result, again}) == 1
    assert result.elapsed != again.elapsed and result.trace != again.trace
    assert {result: "found"}[again] == "found"


@pytest.mark.parametrize(
    "change",
    [
        {"labels": np.zeros(25, dtype=np.int64)},
        {"labels": np.zeros(24, dtype=np.int64)},
        {"energy": -1e9},
        {"lower_bound": -1e9},
        {"status": tm.Status.TIME_LIMIT},
        {"method": "trws"},
        {"options": {"restarts": 7}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_differs_tells_results_apart(result, change):
    other = replace(result, **change)
    assert (result == other) is False and (result != other) is True


def test_options_with_arrays_are_compared_as_wholes(result):
    one, same, other = (replace(result, options={"w": [np.array(v)], "k": (1, None)}) for v in ([1, 2], [1, 2], [1, 3]))
    assert one == same and hash(one) == hash(same) and one != other
    assert one != replace(result, options={"w": [np.array([1, 2, 3])], "k": (1, None)})


def test_other_types_are_never_equal(result):
    assert (result == 3) is False and (result == None) is False and (result == result.labels.tolist()) is False  # noqa: E711
    assert result in [None, result] and [result].index(result) == 0


@pytest.mark.parametrize("method", ["bcd", "trws", "trbp"])
def test_copies_and_pickles_are_equal(model, method):
    result = tm.solve(model, method, max_iterations=5, trace=True)
    for twin in (copy.copy(result), copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
        assert twin == result and hash(twin) == hash(result) and twin is not result
        assert twin.trace == result.trace and twin.elapsed == result.elapsed and twin.summary() == result.summary()
        warm = tm.solve(model, method, max_iterations=5, init=twin)  # the state came along
        assert warm.energy <= result.energy


def test_gap_is_a_share_of_the_energy_at_every_scale(result):
    for scale in (1.0, 1e-9, 1e9):
        shown = replace(result, energy=4.0 * scale, lower_bound=3.0 * scale)
        assert "(25 %)" in shown.summary() and "(25 %)" in shown._repr_html_()
    nothing = replace(result, energy=0.0, lower_bound=-1.0)
    assert "gap          1\n" in nothing.summary() and "%" not in nothing._repr_html_()


@pytest.mark.parametrize(
    "wrong",
    [
        {"iterations": float("inf")},
        {"energy": 10**400},
        {"labels": [10**30]},
        {"labels": [[1], [1, 2]]},
        {"trace": [5]},
    ],
    ids=str,
)
def test_descriptions_that_are_no_result_are_one_sentence(result, wrong):
    with pytest.raises(tm.ModelError, match=r"Result\.from_dict"):
        tm.Result.from_dict(result.to_dict() | wrong)
