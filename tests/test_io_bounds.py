"""Bounds in .cfn and .wcsp files limit the total: what they forbid, against brute force on the numbers of the file."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal

import numpy as np
import pytest

import tightmap as tm
from conftest import data_file

CARDS = (2, 3, 2)
INF = Decimal("Infinity")


def random_functions(rng, digits, lowest):
    """(scope, costs in C order) of a few functions: constants, unaries, pairs and one triple, with a few inf."""
    functions = []
    for scope in [(), (0,), (1,), (1,), (2,), (0, 1), (2, 1), (0, 2), (0, 2), (2, 0, 1)]:
        if rng.random() < 0.3:
            continue
        size = math.prod(CARDS[i] for i in scope)
        numbers = rng.integers(lowest, 60, size=size)
        costs = [INF if scope and rng.random() < 0.05 else Decimal(int(v)).scaleb(-digits) for v in numbers]
        functions.append((scope, costs))
    return functions


def place(scope, x):
    """Where the cost of a labelling stands in the table of a function."""
    at = 0
    for i in scope:
        at = at * CARDS[i] + x[i]
    return at


def totals(functions):
    """Exact total of every labelling, in decimal numbers."""
    every = itertools.product(*map(range, CARDS))
    return {x: sum((costs[place(scope, x)] for scope, costs in functions), Decimal(0)) for x in every}


def as_cfn(functions, sign, bound, sparse):
    """The file, in which costs are ``sign`` times the energies; with ``sparse`` every table is a list of exceptions."""
    lines = []
    for scope, costs in functions:
        texts = ["inf" if c == INF else f"{sign * c:f}" for c in costs]
        names = ", ".join(f'"x{i}"' for i in scope)
        if sparse and len(scope) > 1:
            default = max(texts, key=texts.count)
            rows = zip(itertools.product(*(range(CARDS[i]) for i in scope)), texts, strict=True)
            listed = [" ".join(map(str, (*labels, text))) for labels, text in rows if text != default]
            lines.append(f'{{"scope": [{names}], "defaultcost": {default}, "costs": [{", ".join(listed)}]}}')
        else:
            lines.append(f'{{"scope": [{names}], "costs": [{", ".join(texts)}]}}')
    variables = ", ".join(f'"x{i}": {c}' for i, c in enumerate(CARDS))
    direction = "<" if sign > 0 else ">"
    return (
        f'{{"problem": {{"name": "t", "mustbe": "{direction}{sign * bound:f}"}}, "variables": {{{variables}}}, '
        f'"functions": {{{", ".join(lines)}}}}}'
    )


def hopeless(functions, bound, x):
    """Whether some entry of a labelling, with the smallest costs of all other functions, reaches the bound."""
    least = [min(costs) for _, costs in functions]
    return any(
        costs[place(scope, x)] + sum(least[:f] + least[f + 1 :]) >= bound for f, (scope, costs) in enumerate(functions)
    )


@pytest.mark.parametrize("sign", [1, -1], ids=["minimise", "maximise"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_bound_forbids_what_no_other_cost_can_make_up_for(tmp_path, sign, sparse):
    rng = np.random.default_rng(7)
    path = tmp_path / "m.cfn"
    kept = forbidden = beyond = 0
    for case in range(120):
        digits = case % 3
        functions = random_functions(rng, digits, lowest=(-40, 0)[case % 2])
        exact = totals(functions)
        finite = sorted(v for v in exact.values() if v < INF)
        if not finite:
            continue
        # often exactly the total of some labelling: the border belongs to what is forbidden
        bound = finite[int(rng.integers(len(finite)))] if case % 4 else Decimal(int(rng.integers(-50, 90)))
        path.write_text(as_cfn(functions, sign, bound, sparse))
        model = tm.read(path)
        for x, total in exact.items():
            energy = model.energy(x)
            if total < bound:  # a solution of the file, whatever its single costs are
                assert energy == pytest.approx(float(total), abs=1e-9), (x, bound)
                kept += 1
            elif total == INF or hopeless(functions, bound, x):
                assert energy == math.inf, (x, bound, functions)
                forbidden += 1
            else:
                assert energy == pytest.approx(float(total), abs=1e-9), (x, bound)
                beyond += 1
    assert min(kept, forbidden, beyond) > 50  # every branch was seen


def test_the_published_maximisation(tmp_path):
    model = tm.read(data_file("families/maximization.cfn"))
    energies = [model.energy([a, b]) for a in (0, 1) for b in (0, 1)]
    assert energies == [math.inf, 4.0, math.inf, -0.5]  # the constant -6 does not forbid; -5 and below do
    result = tm.solve(model, "exact")
    assert result.status is tm.Status.OPTIMAL and result.energy == -0.5


def test_exact_at_the_border(tmp_path):
    """0.1 + 0.7 is below 0.8 in binary numbers, and 0.1 + 0.2 above 0.3: the bound is compared in decimal ones."""
    path = tmp_path / "m.cfn"

    def energies(bound, first, second):
        path.write_text(
            f'{{"problem": {{"name": "t", "mustbe": "<{bound}"}}, "variables": {{"a": 2, "b": 2}}, "functions": {{'
            f'{{"scope": ["a"], "costs": [{first}]}}, {{"scope": ["b"], "costs": [{second}]}}}}}}'
        )
        model = tm.read(path)
        return [model.energy([a, b]) for a in (0, 1) for b in (0, 1)]

    assert energies("0.8", "0.1, 0.2", "0.6, 0.7") == pytest.approx([0.7, math.inf, math.inf, math.inf])
    assert energies("0.4", "0.1, 0.2", "0.1, 0.2") == pytest.approx([0.2, 0.3, 0.3, 0.4])  # 0.2 + 0.1 < 0.4 each
    assert energies("0.3", "0.1, 0.2", "0.1, 0.2") == pytest.approx([0.2, math.inf, math.inf, math.inf])
    assert energies("0.2", "0.1, 0.2", "0.1, 0.2") == [math.inf] * 4  # not even the smallest total is below
    assert energies("inf", "0.1, 0.2", "0.1, 0.2") == pytest.approx([0.2, 0.3, 0.3, 0.4])


def test_arithmetic_functions_under_a_bound(tmp_path):
    """A violated constraint is forbidden whatever the bound is; a penalty only where the bound says so."""
    path = tmp_path / "m.cfn"
    text = (
        '{"problem": {"name": "t", "mustbe": "<BOUND"}, "variables": {"a": 3, "b": 3}, "functions": {'
        '{"scope": [], "costs": [-20]}, {"scope": ["a", "b"], "type": "KIND", "params": [PARAMS]}}}'
    )

    def table(bound, kind, parameters):
        path.write_text(text.replace("BOUND", bound).replace("KIND", kind).replace("PARAMS", parameters))
        model = tm.read(path)
        return [[model.energy([a, b]) for b in range(3)] for a in range(3)]

    # a >= b, by at most 1 of violation: b - a of it costs as much
    assert table("10", ">=", "0 1") == [[-20, -19, math.inf], [-20, -20, -19], [-20, -20, -20]]
    assert table("10", "disj", "2 2 25") == [[5, 5, -20], [5, 5, 5], [-20, 5, 5]]
    assert table("5", "disj", "2 2 25") == [[math.inf, math.inf, -20], [math.inf] * 3, [-20, math.inf, math.inf]]


def test_wcsp_costs_at_the_bound_are_forbidden(tmp_path):
    """No cost of a .wcsp file is negative, so that one at or above the bound is forbidden, alone."""
    rng = np.random.default_rng(3)
    path = tmp_path / "m.wcsp"
    for _ in range(30):
        functions = [(s, c) for s, c in random_functions(rng, 0, lowest=0) if INF not in c]
        bound = int(rng.integers(20, 120))
        lines = [f"w 3 3 {len(functions)} {bound} 2 3 2"]
        for scope, costs in functions:
            rows = list(itertools.product(*(range(CARDS[i]) for i in scope)))
            head = f"{len(scope)} {' '.join(map(str, scope))} 0 {len(rows)}"
            lines += [head, *(" ".join(map(str, (*r, c))) for r, c in zip(rows, costs, strict=True))]
        path.write_text("\n".join(lines))
        model = tm.read(path)
        for x, total in totals(functions).items():
            if total < bound:
                assert model.energy(x) == float(total)
            single = max((costs[place(scope, x)] for scope, costs in functions), default=Decimal(0))
            assert (model.energy(x) == math.inf) == (single >= bound)
    path.write_text("w 2 2 1 9 2 2 2 0 1 -1 disj 1 1 -5")
    with pytest.raises(tm.ModelError, match="costs of at least 0"):
        tm.read(path)


def test_bounds_that_nothing_meets(tmp_path):
    path = tmp_path / "m.cfn"
    head = '{"problem": {"name": "t", "mustbe": "BOUND"}, "variables": {"a": 2}, "functions": {}}'
    for bound in ("<-inf", ">inf", "<x", "5", "<nan"):
        path.write_text(head.replace("BOUND", bound))
        with pytest.raises(tm.ModelError, match="expected"):
            tm.read(path)
