"""Building calls: what they take, what they refuse, and in which words."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest

import tightmap as tm


def test_the_contract_in_one_piece():
    model = tm.Model.grid(2, 3, 4)
    assert model.edges().tolist() == [[0, 1], [1, 2], [3, 4], [4, 5], [0, 3], [1, 4], [2, 5]]
    assert len(model.edges(8)) == 11
    model.add_unaries(np.arange(24.0).reshape(6, 4))
    model.add_unaries([[1.0, 0, 0, 0]], nodes=[2])
    model.add_factors([[0, 1]], np.ones((4, 4)))
    model.add_factors([[0, 1], [1, 2]], np.ones((2, 4, 4)))
    model.add_factors([[0, 1, 2]], np.ones((4, 4, 4)), weights=[2.0])
    model.add_potts([[0, 1]], [3.0])
    model.add_truncated_linear([[0, 1]], [1.0], 2)
    model.add_truncated_quadratic([[0, 1]], [1.0], 5)
    model.add_pn_potts([[0, 1, 2]], [1.0])
    model.add_second_difference([[0, 1, 2]], [1.0], np.tile(np.arange(4.0), (6, 1)), 2.0)
    x = np.array([0, 3, 2, 1, 1, 1])
    unary = sum(4 * i + s for i, s in enumerate(x))
    expected = unary + 1 + 2 + 2 + 3 + 2 + 5 + 1 + min(abs(0 - 6 + 2), 2)
    assert model.energy(x) == expected
    assert model.energy(x.reshape(2, 3)) == expected
    assert model.num_factors == 9 and model.max_order == 3 and model.max_labels == 4


CASES = [
    (lambda m: tm.Model([2, 0]), "variable 1 has 0 labels"),
    (lambda m: tm.Model([[2, 2]]), "one-dimensional"),
    (lambda m: tm.Model([2.5]), "integers"),
    (lambda m: tm.Model.grid(0, 3, 2), "at least 1"),
    (lambda m: m.add_unaries(np.zeros((2, 3))), r"expected one vector a variable|expected"),
    (lambda m: m.add_unaries([[0.0, 1.0], [0, 0, np.nan], [0, 0]]), "nan"),
    (lambda m: m.add_unaries([[0.0, -np.inf], [0, 0, 0], [0, 0]]), "-inf"),
    (lambda m: m.add_unaries(np.full((3, 2), 1j)), "complex"),
    (lambda m: m.add_unaries([[0.0, 1.0]]), "expected 3 vectors, got 1"),
    (lambda m: m.add_unaries([[0.0, 1.0]], nodes=[7]), "variables are 0..2"),
    (lambda m: m.add_unaries([["a", 1.0]], nodes=[0]), "numbers"),
    (lambda m: m.add_factors([[0, 3]], np.zeros((2, 2))), "row 0 is"),
    (lambda m: m.add_factors([[0, -1]], np.zeros((2, 2))), "row 0 is"),
    (lambda m: m.add_factors([[0, 1]], np.zeros((2, 2))), r"label counts \(2, 3\)"),
    (lambda m: m.add_factors([[0, 1]], np.zeros(3)), "expected 2 axes"),
    (lambda m: m.add_factors([[0, 1]], np.full((2, 3), np.nan)), "nan"),
    (lambda m: m.add_factors([[0.5, 1]], np.zeros((2, 3))), "integers"),
    (lambda m: m.add_factors([[0, 1]], np.full((2, 3), np.inf), weights=[-1.0]), "negative weight"),
    (lambda m: m.add_factors([[0, 1]], np.zeros((2, 3)), weights=[1.0, 2.0]), "expected 1 finite"),
    (lambda m: m.add_potts([[0, 1, 2]], [1.0]), r"\(m, 2\)"),
    (lambda m: m.add_potts([[0, 1]], [np.inf]), "finite"),
    (lambda m: m.add_truncated_linear([[0, 1]], [1.0], -1.0), "none negative"),
    (lambda m: m.add_pn_potts([[0]], [1.0]), "at least 2"),
    (lambda m: m.add_pn_potts([[0, 1]], [1.0], label_costs=[1.0]), "expected 2 numbers"),
    (lambda m: m.add_label_patterns([[0, 1, 2]], [1.0, 2.0]), "expected 5 finite"),
    (lambda m: m.add_sparse([[0, 1]], [[0, 5]], [1.0]), "entry 0"),
    (lambda m: m.add_sparse([[0, 1]], [[0, 1], [0, 1]], [1.0, 2.0]), "twice"),
    (lambda m: m.add_second_difference([[0, 1, 2]], [1.0], np.zeros(3), 1.0), "expected 7"),
    (lambda m: m.energy([0, 0]), "expected 3 integers"),
    (lambda m: m.energy([0, 3, 0]), "variable 1 has labels 0..2, got 3"),
    (lambda m: m.energy([0.0, 1.0, 0.0]), "integers"),
    (lambda m: m.clamp({9: 0}), "variable 9"),
    (lambda m: m.clamp({0: 5}), "labels 0..1"),
    (lambda m: m.edges(), "Model.grid"),
    (lambda m: m.add_constant(np.nan), "nan"),
    (lambda m: tm.Model([[2], [2, 3]]), "cardinalities: expected an array"),
    (lambda m: tm.Model(np.ma.array([2, 3], mask=[0, 1])), "masked"),
    (lambda m: m.add_unaries(5), "got int"),
    (lambda m: m.add_unaries(None), "got NoneType"),
    (lambda m: m.add_unaries({0: [0.0, 1.0]}), "got dict"),
    (lambda m: m.add_unaries([0.0, 1.0] for _ in range(2)), "expected 3 vectors, got 2"),
    (lambda m: m.add_unaries([[10**400, 0]], nodes=[0]), "more than float64"),
    (lambda m: m.add_unaries([[Decimal("1e400"), 0]], nodes=[0]), "more than float64"),
    (lambda m: m.add_unaries(np.ma.array([[0.0, 1.0]], mask=[[0, 1]]), nodes=[0]), "masked"),
    (lambda m: m.add_unaries([np.ma.array([0.0, 1.0], mask=[0, 1])], nodes=[0]), "masked"),
    (lambda m: m.add_constant(10**400), "more than float64"),
    (lambda m: m.add_constant([1.0, 2.0]), "expected one number"),
    (lambda m: m.add_factors([0, 1], np.zeros((2, 3))), r"one factor: \[\[0, 1\]\]"),
    (lambda m: m.add_factors([[0, 1], [0]], np.zeros((2, 3))), "scopes: expected an array"),
    (lambda m: m.add_factors([[0, 1]], np.zeros((2, 3)), weights=10**400), "more than float64"),
    (lambda m: m.add_indexed_factors([[0, 1]], np.zeros((2, 2, 3)), [np.nan]), "index: expected integers"),
    (lambda m: m.add_indexed_factors([[0, 1]], np.zeros((2, 2, 3)), [0.7]), "index: expected integers"),
    (lambda m: m.add_indexed_factors([[0, 1]], np.zeros((2, 2, 3)), ["0"]), "index: expected integers"),
    (lambda m: m.add_indexed_factors([[0, 1]], 1.0, [0]), "index: expected 1 numbers"),
    (lambda m: m.add_sparse([[0, 1]], [[0.5, 1.0]], [1.0]), "entries: expected integers"),
    (lambda m: m.add_sparse([[0, 1]], [[0, 1, 1]], [1.0]), "expected 2 labels in every row"),
    (lambda m: m.add_sparse([[0, 1]], [0, 1, 0], [1.0]), "2 axes"),
    (lambda m: m.add_sparse([[0, 1]], [[10**30, 0]], [1.0]), "integers"),
    (lambda m: m.add_sparse([[0, 1]], np.array([[2**63, 0]], dtype=np.uint64), [1.0]), "63 bits"),
    (lambda m: m.add_sparse([[0, 1]], [[0, 1]], [1.0], default=[1.0, 2.0]), "expected one number"),
    (lambda m: m.add_pn_potts([[0, 1]], disagreement="x"), "disagreement"),
    (lambda m: m.add_pn_potts([[0, 1]], disagreement=None), "disagreement"),
    (lambda m: m.add_pn_potts([[0, 1]], disagreement=[1.0, 2.0]), "expected one number"),
    (lambda m: m.add_second_difference([[0, 1, 2]], [1.0], None), "got NoneType"),
    (lambda m: m.add_second_difference([[0, 1, 2]], [1.0], np.zeros(7), "x"), "limit"),
    (lambda m: m.add_second_difference([[0, 1, 2]], [1.0], np.zeros(7), None), "limit"),
    (lambda m: m.energy([[0], [0, 1], 0]), "labels: expected an array"),
    (lambda m: tm.Model.grid(2, 2, 2).edges([8]), "neighbours must be 4 or 8"),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_bad_input_is_refused_in_words_and_changes_nothing(case):
    call, words = CASES[case]
    model = tm.Model([2, 3, 2])
    with pytest.raises(tm.ModelError, match=words):
        call(model)
    assert model.num_factors == 0 and (model.unaries == 0).all() and model.constant == 0.0


def test_a_zero_weight_switches_a_hard_factor_off():
    model = tm.Model([2, 2])
    model.add_factors([[0, 1]], np.full((2, 2), np.inf), weights=[0.0])
    assert model.energy([0, 0]) == 0.0
    assert model.graph().m == 0


def test_unaries_are_read_only():
    model = tm.Model([2])
    with pytest.raises(ValueError, match="read-only"):
        model.unaries[0] = 1.0


class Foreign:
    """An array of another library: it can be turned into one of NumPy's, and is none."""

    def __init__(self, values):
        self.values = np.asarray(values)

    def __array__(self, dtype=None, copy=None):
        return self.values if dtype is None else self.values.astype(dtype)


def test_arrays_of_other_libraries_and_generators():
    model = tm.Model(Foreign([2, 2]))
    model.add_unaries(Foreign([[1.0, 2.0], [3.0, 4.0]]))
    model.add_unaries([s, 0.0] for s in (10.0, 20.0))
    model.add_unaries(memoryview(np.ones((2, 2))))
    model.add_factors(Foreign([[0, 1]]), Foreign([[7.0, 100.0], [8.0, 50.0]]), Foreign([2.0]))
    assert model.energy(Foreign([0, 1])) == 1 + 4 + 10 + 2 + 200
    assert tm.solve(model, method="bcd", init=Foreign([0, 1]), time_limit=0).labels.tolist() == [0, 1]


def build_from(arrays):
    """A model of all kinds of factor, from the arrays in the dict."""
    model = tm.Model(arrays["cards"])
    model.add_unaries(arrays["unaries"])
    model.add_factors(arrays["pairs"], arrays["table"], arrays["weight"])
    model.add_indexed_factors(arrays["pairs"], arrays["pool"], arrays["index"])
    model.add_potts(arrays["pairs"], arrays["number"])
    model.add_truncated_linear(arrays["pairs"], arrays["weight"], arrays["limit"])
    model.add_truncated_quadratic(arrays["pairs"], arrays["weight"], arrays["number"])
    model.add_pn_potts(arrays["triples"], arrays["weight"], arrays["own"])
    model.add_label_patterns(arrays["triples"], arrays["patterns"], arrays["weight"])
    model.add_sparse(arrays["pairs"], arrays["entries"], arrays["values"], arrays["number"], arrays["weight"])
    model.add_second_difference(arrays["triples"], arrays["weight"], arrays["unaries"], 5.0)
    return model


def given_arrays():
    rng = np.random.default_rng(0)
    return {
        "cards": np.array([2, 2, 2]),
        "unaries": rng.random((3, 2)),
        "pairs": np.array([[0, 1]]),
        "triples": np.array([[0, 1, 2]]),
        "weight": np.array([1.5]),
        "number": np.array(0.5),
        "limit": np.array([0.75]),
        "table": rng.random((2, 2)),
        "pool": rng.random((2, 2, 2)),
        "index": np.array([1]),
        "own": rng.random(2),
        "patterns": rng.random(5),
        "entries": np.array([[0, 1]]),
        "values": np.array([3.0]),
    }


@pytest.mark.parametrize("name", list(given_arrays()))
@pytest.mark.parametrize("foreign", [False, True])
def test_arrays_that_change_later_do_not_change_the_model(name, foreign):
    """Otherwise a bound would be of another model than the energy, and scopes might point outside of it."""
    arrays = given_arrays()
    model = build_from({k: Foreign(v) if foreign else v for k, v in arrays.items()})
    every = np.indices((2, 2, 2)).reshape(3, -1).T
    before = [model.energy(x) for x in every]
    arrays[name][...] = 1 if name in ("index", "pairs", "triples", "entries", "cards") else 77.0
    if name == "index":
        arrays[name][...] = 0
    assert [model.energy(x) for x in every] == before


def test_weights_that_change_later_do_not_change_a_plan():
    model = tm.Model([2, 2])
    model.add_unaries([[0.0, 1.0], [1.0, 0.0]])
    model.add_potts([[0, 1]])
    weights = np.array([0.25])
    model.replace_weights(weights)
    weights[0] = 7.0
    assert model.energy([0, 1]) == 0.25


def test_one_buffer_for_several_factors():
    model = tm.Model([2, 2, 2])
    table = np.zeros((2, 2))
    for edge, cost in (([0, 1], 1.0), ([1, 2], 2.0)):
        table[0, 0] = cost
        model.add_factors([edge], table)
    assert model.energy([0, 0, 0]) == 3.0


def test_infinite_costs():
    model = tm.Model([2, 2])
    model.add_unaries([[0.0, np.inf], [1.0, 2.0]])
    assert model.energy([1, 0]) == np.inf and model.energy([0, 1]) == 2.0


def test_grids_of_any_dimension():
    from itertools import combinations

    assert tm.Model.grid((2, 2, 2), 3).energy(np.ones((2, 2, 2), dtype=int)) == 0.0  # labels in the grid's own shape
    for shape, neighbours, reach in (
        ((5,), 2, 1),
        ((3, 4), 4, 1),
        ((3, 4), 8, 2),
        ((2, 3, 4), 6, 1),
        ((2, 3, 4), 18, 2),
        ((2, 3, 4), 26, 3),
        ((2, 2, 2, 2), 8, 1),
    ):
        model = tm.Model.grid(shape, 3)
        model.add_unaries(np.zeros((*shape, 3)))
        cells = list(np.ndindex(shape))
        expected = {
            (i, j)
            for (i, a), (j, b) in combinations(enumerate(cells), 2)
            if max(abs(x - y) for x, y in zip(a, b, strict=True)) == 1
            and sum(x != y for x, y in zip(a, b, strict=True)) <= reach
        }
        edges = model.edges(neighbours)
        assert len(edges) == len(expected) and {tuple(e) for e in edges.tolist()} == expected
    assert tm.Model.grid(2, 3, 4).edges().tolist() == tm.Model.grid((2, 3), 4).edges().tolist()
    assert tm.Model.grid(2, 2, 2).edges(8).tolist() == [[0, 1], [2, 3], [0, 2], [1, 3], [0, 3], [1, 2]]
    for wrong in ((2, 3), ((2, 3), 0), ((), 3), ((2.5, 2), 3), (2, 3, 4, 5), ((2, True), 3)):
        with pytest.raises(tm.ModelError, match="grid"):
            tm.Model.grid(*wrong)
    with pytest.raises(tm.ModelError, match="6 or 18 or 26"):
        tm.Model.grid((2, 2, 2), 2).edges(4)
