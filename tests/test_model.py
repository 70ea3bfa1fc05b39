"""Building calls: what they take, what they refuse, and in which words."""

from __future__ import annotations

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


def test_infinite_costs():
    model = tm.Model([2, 2])
    model.add_unaries([[0.0, np.inf], [1.0, 2.0]])
    assert model.energy([1, 0]) == np.inf and model.energy([0, 1]) == 2.0


def test_grids_of_any_dimension():
    from itertools import combinations

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
