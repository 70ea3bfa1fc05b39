"""What clumsy callers hand over: dates for costs, masked evidence, grids of many dimensions, numbers as in Python."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest

import tightmap as tm

TIMES = np.array([[1, "NaT"], [3, 4]], "m8[s]")
DATES = np.array([["2020-01-01", "NaT"]] * 2, "M8[s]")


@pytest.mark.parametrize("costs", [TIMES, DATES, list(TIMES), TIMES.tolist()])
def test_dates_and_times_are_no_costs(costs):
    model = tm.Model([2, 2])
    with pytest.raises(tm.ModelError, match="expected an array of numbers"):
        model.add_unaries(costs)
    with pytest.raises(tm.ModelError, match="expected an array of numbers"):
        model.add_factors([[0, 1]], costs)
    with pytest.raises(tm.ModelError, match="expected an array of numbers"):
        model.add_potts([[0, 1]], np.timedelta64(3, "s"))
    assert model.energy([0, 0]) == 0.0


@pytest.mark.parametrize("text", ["1e999", b"1e999"])
def test_a_text_that_is_too_large_is_not_infinity(text):
    model = tm.Model([2])
    with pytest.raises(tm.ModelError, match="more than float64"):
        model.add_unaries(np.array([[text, "1"]]) if isinstance(text, str) else np.array([[text, b"1"]]))
    model.add_unaries([["inf", "1"]])
    assert model.energy([0]) == np.inf


def test_evidence_that_is_masked_or_a_time():
    model = tm.Model([2, 2])
    for wrong in (np.ma.masked_array([[0, 1]], [[0, 1]]), np.array([[0, 1]], "m8[s]")):
        with pytest.raises(tm.ModelError, match="evidence"):
            model.clamp(wrong)
    assert model.energy([0, 0]) == 0.0


@pytest.mark.parametrize("size", [(2, 2, 10**400), ((10**400, 2), 2), ((2,) * 33, 2), (2**40, 2**40, 2)])
def test_grids_that_cannot_be(size):
    with pytest.raises(tm.ModelError, match="grid"):
        tm.Model.grid(*size)


def test_edges_of_many_dimensions():
    """Steps were chosen among all 3^d."""
    assert tm.Model.grid((1,) * 30, 2).edges().shape == (0, 2)
    assert tm.Model.grid((2,) * 16, 2).edges().shape == (16 * 2**15, 2)
    with pytest.raises(tm.ModelError, match="list the edges yourself"):
        tm.Model.grid((1,) * 20, 2).edges(3**20 - 1)


@pytest.mark.parametrize(("dimensions", "neighbours"), [(2, 4), (2, 8), (3, 18), (3, 26), (4, 80)])
def test_edges_are_all_pairs_of_neighbours(dimensions, neighbours):
    shape = (3, 2, 2, 3)[:dimensions]
    model = tm.Model.grid(shape, 2)
    cells = list(product(*map(range, shape)))
    reach = {4: 1, 8: 2, 18: 2, 26: 3, 80: 4}[neighbours]
    expected = {
        (a, b)
        for a, x in enumerate(cells)
        for b, y in enumerate(cells)
        if a < b
        and max(abs(p - q) for p, q in zip(x, y, strict=True)) == 1
        and sum(p != q for p, q in zip(x, y, strict=True)) <= reach
    }
    edges = model.edges(neighbours)
    assert len(edges) == len(expected) and set(map(tuple, edges.tolist())) == expected


@pytest.mark.filterwarnings("error")
def test_complex_vectors_to_begin_with():
    model = tm.Model([2, 2])
    model.add_potts([[0, 1]], 1.0)
    with pytest.raises(tm.ModelError, match="init"):
        tm.solve(model, "bcd", init=np.full((2, 2), 0.5 + 0j))


def test_results_that_took_for_ever_are_json():
    result = tm.solve(tm.Model([2, 3]), "bcd")
    again = tm.Result.from_dict(result.to_dict() | {"elapsed": np.inf})
    assert tm.Result.from_dict(json.loads(again.to_json())).elapsed == np.inf
    with pytest.raises(tm.ModelError, match="labels"):
        tm.Result.from_dict(result.to_dict() | {"labels": np.zeros(2, "m8[s]")})


@pytest.mark.parametrize("folder", [3, b"folder", "a\0b"])
def test_checkpoints_that_are_no_path(folder):
    with pytest.raises(tm.OptionError, match="checkpoint"):
        list(tm.solve_many([tm.Model([2])], engine="serial", checkpoint=folder))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("m.dd", "p 1 1 1 0\na 0 0 0 1_000\n"),
        ("m.qubo", "p qubo 0 2 1 1\n0 0 1\n0 1 1_000\n"),
        (
            "m.cfn",
            "{problem: {name: G, mustbe: <9000}, variables: {x: 2}, functions: {f: {scope: [x], costs: [1, 1_000]}}}",
        ),
        (
            "m.cfn",
            "{problem: {name: G, mustbe: <9_000}, variables: {x: 2}, functions: {f: {scope: [x], costs: [1, 2]}}}",
        ),
    ],
)
def test_numbers_as_only_python_writes_them(tmp_path, name, text):
    (tmp_path / name).write_text(text.replace("_", ""))
    tm.read(tmp_path / name)
    (tmp_path / name).write_text(text)
    with pytest.raises(tm.ModelError):
        tm.read(tmp_path / name)


def test_names_of_files_with_a_null_character():
    model = tm.Model([2])
    for act in (tm.read, tm.read_labels, lambda path: tm.write(model, path), lambda path: tm.write_labels([0], path)):
        with pytest.raises(tm.ModelError, match="null byte"):
            act("a\0b.uai")
