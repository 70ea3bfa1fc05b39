"""Cost functions of .wcsp files that are read together are those that are read one by one."""

from __future__ import annotations

import numpy as np
import pytest

import tightmap as tm
from tightmap.io import wcsp_bulk


def a_file(rng: np.random.Generator, n: int, functions: int) -> str:
    """Functions of one to three variables, some tuples listed twice, some forbidden; keywords and shared tables."""
    cards = rng.integers(1, 5, n)
    lines = [f"w {n} {cards.max()} {functions} 40", " ".join(map(str, cards))]
    for f in range(functions):
        arity = int(rng.integers(1, 4))
        scope = rng.choice(n, arity, replace=False)
        number = int(rng.integers(0, 7))
        cells = [[*(rng.integers(0, cards[v]) for v in scope), rng.integers(0, 50)] for _ in range(number)]
        tuples = [" ".join(map(str, cell)) for cell in cells]
        if f % 11 == 5 and arity == 2:
            lines.append(f"2 {scope[0]} {scope[1]} -1 >= 1 3")
            continue
        sign = -1 if f % 13 == 3 else 1
        lines.append(f"{sign * arity} {' '.join(map(str, scope))} {rng.integers(0, 9)} {number} {' '.join(tuples)}")
    return "\n".join(lines)


def same(one: tm.Model, other: tm.Model) -> None:
    assert np.array_equal(one.unaries, other.unaries) and one.constant == other.constant
    assert len(one.blocks) == len(other.blocks)
    for a, b in zip(one.blocks, other.blocks, strict=True):
        assert type(a) is type(b) and np.array_equal(a.scopes, b.scopes) and np.array_equal(a.weights, b.weights)
        assert a.parameters.keys() == b.parameters.keys()
        assert all(np.array_equal(a.parameters[k], b.parameters[k]) for k in a.parameters)


@pytest.mark.parametrize("seed", range(6))
def test_the_same_as_one_by_one(seed: int, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    path = tmp_path / "m.wcsp"
    path.write_text(a_file(rng, 12, 150))
    for together, chunk in ((4096, 1 << 16), (3, 20)):
        monkeypatch.setattr(wcsp_bulk, "TOGETHER", together)
        monkeypatch.setattr(wcsp_bulk, "CHUNK", chunk)
        one = tm.read(path)
        with monkeypatch.context() as m:
            m.setattr(wcsp_bulk.Bulk, "read", lambda self, most: 0)
            same(one, tm.read(path))


@pytest.mark.parametrize(
    ("tail", "message"),
    [
        ("1 0 0 1 5 1", "label in 0..1"),
        ("1 7 0 1 0 1", "a variable of cost function 1"),
        ("2 0 0 0 1 0 0 1", "distinct variables"),
        ("1 0 0 1 0 -1", "cost of at least 0"),
        ("1 0 0 2 0 1", "number of tuples"),
        ("1 0 0", "number of tuples"),
    ],
)
def test_errors_are_those_of_single_functions(tail: str, message: str, tmp_path) -> None:
    path = tmp_path / "m.wcsp"
    path.write_text(f"w 2 2 2 9 2 2 1 1 0 1 1 3 {tail}")
    with pytest.raises(tm.ModelError, match=message):
        tm.read(path)
