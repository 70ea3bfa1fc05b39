"""Small files that ask for much work or memory, overflow, or have a shape that NumPy does not know."""

from __future__ import annotations

import io
import itertools
import json
import time
import tracemalloc
import zipfile

import h5py
import numpy as np
import pytest

import io_fixtures as G
import tightmap as tm
from tightmap import io as tio
from tightmap.factors.block import labelling_numbers, numbered_labellings

MIB = 1 << 20


def put(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refused(path, match, **options):
    with pytest.raises(tm.ModelError, match=match) as caught:
        tm.read(path, **options)
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and message.isprintable()


def peak(work):
    """Result and largest memory, in MiB, of some work."""
    tracemalloc.start()
    try:
        result = work()
        return result, tracemalloc.get_traced_memory()[1] / MIB
    finally:
        tracemalloc.stop()


# ---------------------------------------------------------------------------------------------- work


def test_long_tokens_take_linear_time(tmp_path):
    begin = time.monotonic()
    for token in ("1" * 300_000 + "x", "1." + "1" * 300_000 + "e", "+" * 300_000, "x" * 300_000):
        refused(put(tmp_path / "m.wcsp", f"w 1 2 1 10 2 1 0 0 1 {token} 2"), "expected")
        refused(put(tmp_path / "m.uai", f"MARKOV 1 2 1 1 0 2 1 {token}"), "expected a number")
        refused(put(tmp_path / "m.qubo", f"p qubo 0 2 1 0\n0 0 {token}\n"), "expected 'i j weight'")
    assert time.monotonic() - begin < 30.0  # quadratic time would take hours


def test_unaries_are_added_in_place_until_somebody_sees_them():
    """Thousands of calls, one per label count of a ragged file, must not copy all costs every time."""
    model = tm.Model([2, 3, 3])
    model.add_unaries([[1.0, 2.0]], nodes=[0])
    own = model.given_unaries
    model.add_unaries([[1.0, 2.0, 3.0]], nodes=[1])
    assert model.given_unaries is own
    graph, shown = model.graph(), model.unaries
    for _ in range(2):
        model.add_unaries([[5.0, 5.0, 5.0]], nodes=[2])
    assert graph.arrays.unary.tolist() == shown.tolist() == [1, 2, 1, 2, 3, 0, 0, 0]
    assert model.unaries.tolist() == [1, 2, 1, 2, 3, 10, 10, 10]


def test_right_points_of_any_number(tmp_path):
    model, used = peak(lambda: tm.read(put(tmp_path / "m.dd", "p 1 2000000000 1 0\na 0 0 1999999999 1\n")))
    assert used < 5 and model.cardinalities.tolist() == [2]


def test_conflicts_are_counted_first(tmp_path):
    lines = "".join(f"a {i} {i} 0 1\n" for i in range(6000))
    _, used = peak(
        lambda: refused(put(tmp_path / "m.dd", f"p 6000 1 6000 0\n{lines}"), "17997000 pairs of assignments")
    )
    assert used < 30


def test_a_function_shared_by_many_unary_factors(tmp_path):
    """20000 factors on one variable of 2000 labels use one function: not 40 million numbers at a time."""
    path, labels, factors = tmp_path / "m.h5", 2000, 20000
    records = [0, 0, 1, 0] * factors
    G.opengm(path, {16000: (1, [1, labels], np.arange(labels))}, (labels,), records)
    model, used = peak(lambda: tm.read(path))
    assert used < 120
    assert model.energy([3]) == 3.0 * factors
    G.opengm(path, {16000: (1, [1, 10**6], np.arange(10**6))}, (10**6,), [0, 0, 1, 0] * 300)
    refused(path, "300 factors on single variables have more than 268435456 costs")


def test_hard_potts_functions_become_one_block(tmp_path):
    path = tmp_path / "m.h5"
    edges = list(itertools.combinations(range(12), 2))
    records = [v for i, j in edges for v in (0, 0, 2, i, j)]
    G.opengm(path, {16006: (1, [3, 3], [0.0, np.inf])}, (3,) * 12, records)
    model = tm.read(path)
    assert len(model.blocks) == 1 and model.energy([1] * 12) == 0.0 and model.energy([1] * 11 + [2]) == np.inf


def test_work_of_experts_is_limited(tmp_path):
    path = tmp_path / "m.h5"
    experts = 200
    G.opengm(path, {16033: (1, [experts, 2, 2000], np.ones(3 * experts))}, (2000, 2000), [0, 0, 2, 0, 1])
    refused(path, "200 experts on 4000000 labellings")
    with h5py.File(path, "a") as file:
        file["gm/header"][...] = [2, 0, 2, 1, 1, 16033, 1, 1]
        del file["gm/header"]
        file["gm/header"] = np.array([2, 0, 2, 1, 2, 16033, 1, 16033, 1, 1], dtype=np.uint64)
    refused(path, "2 different types of function")


def test_arithmetic_functions_are_counted_together(tmp_path):
    functions = "".join('{"scope": ["a", "b"], "type": ">=", "params": [0, 9]}, ' for _ in range(3))
    text = '{"problem": {"name": "x", "mustbe": "<9"}, "variables": {"a": 5000, "b": 5000}, "functions": {FUNCTIONS}}'
    refused(put(tmp_path / "m.cfn", text.replace("FUNCTIONS", functions)), "7.5e.07 table entries, the limit")


# ---------------------------------------------------------------------------------------------- long scopes


@pytest.mark.parametrize("n", [30, 31, 32, 33, 100])
def test_variables_of_one_label_in_long_scopes(n, tmp_path):
    """NumPy has 32 axes, or 64; a table on 100 variables of which two have more than one label is a matrix."""
    cards = [1] * n
    cards[7], cards[20] = 2, 3
    scope = list(range(n))
    numbers = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    names = " ".join(map(str, scope))
    uai = f"MARKOV {n} {' '.join(map(str, cards))} 1 {n} {names} 6 {' '.join(map(str, numbers))}"
    rows = [[0] * 7 + [a] + [0] * 12 + [b] + [0] * (n - 21) for a in range(2) for b in range(3)]
    tuples = " ".join(f"{' '.join(map(str, r))} {v:.0f}" for r, v in zip(rows, numbers, strict=True))
    wcsp = f"w {n} 3 1 99 {' '.join(map(str, cards))} {n} {names} 0 6 {tuples}"
    variables = ", ".join(f'"x{i}": {c}' for i, c in enumerate(cards))
    head = f'{{"problem": {{"name": "x", "mustbe": "<99"}}, "variables": {{{variables}}}, "functions": {{"f": '
    listed = ", ".join(f'"x{i}"' for i in scope)
    dense = head + f'{{"scope": [{listed}], "costs": {numbers}}}}}}}'
    sparse = head + f'{{"scope": [{listed}], "defaultcost": 0, "costs": [{tuples}]}}}}}}'
    models = {
        "uai": tm.read(put(tmp_path / "m.uai", uai), values="cost"),
        "wcsp": tm.read(put(tmp_path / "m.wcsp", wcsp)),
        "dense": tm.read(put(tmp_path / "m.cfn", dense)),
        "sparse": tm.read(put(tmp_path / "m.cfn", sparse)),
    }
    path = tmp_path / "m.h5"
    fortran = np.array(numbers).reshape(2, 3).ravel(order="F")
    G.opengm(path, {16000: (1, [n, *cards], fortran)}, cards, [0, 0, n, *scope])
    models["h5"] = tm.read(path)
    keys = np.arange(6)
    G.opengm(path, {16001: (1, [n, *cards, 6, *keys], [0.0, *fortran])}, cards, [0, 0, n, *scope])
    models["sparse h5"] = tm.read(path)
    for name, model in models.items():
        assert [model.energy(r) for r in rows] == numbers, name
        model.graph()


def test_scopes_that_are_too_long(tmp_path):
    names = " ".join(map(str, range(200)))
    ones = " ".join(["1"] * 200)
    refused(put(tmp_path / "m.uai", f"MARKOV 200 {ones} 1 200 {names} 1 1"), "at most 127 variables, got 200")
    path = tmp_path / "m.h5"
    G.opengm(path, {16000: (1, [200, *[1] * 200], [1.0])}, [1] * 200, [0, 0, 200, *range(200)])
    refused(path, "at most 127 variables, got 200")
    with pytest.raises(tm.ModelError, match="2 to 64 variables"):
        tm.Model([1] * 70).add_sparse([list(range(70))], [[0] * 70], [1.0])


@pytest.mark.parametrize("k", [31, 32, 33, 60])
def test_exceptions_of_more_variables_than_an_array_has_axes(k, tmp_path):
    model = tm.Model([2] * k)
    model.add_sparse([list(range(k))[::-1]], [[1] * k, [0] * (k - 1) + [1]], [-1.0, -2.0], default=3.0)
    model.graph()
    for suffix in (".npz", ".h5"):
        tm.write(model, tmp_path / f"m{suffix}")
        back = tm.read(tmp_path / f"m{suffix}")
        back.graph()
        for labels, cost in (([1] * k, -1.0), ([1] + [0] * (k - 1), -2.0), ([0] * (k - 1) + [1], 3.0)):
            assert back.energy(labels) == model.energy(labels) == cost


def test_numbers_of_labellings_are_those_of_numpy():
    rng = np.random.default_rng(0)
    for shape in ((2, 3), (4,), (1, 5, 1, 2), (2,) * 20):
        labels = rng.integers(0, shape, size=(9, len(shape)))
        numbers = labelling_numbers(labels, shape)
        assert (numbers == np.ravel_multi_index(tuple(labels.T), shape)).all()
        assert (numbered_labellings(numbers, shape) == labels).all()
    assert labelling_numbers(np.zeros((3, 0), int), ()).tolist() == [0, 0, 0]
    assert numbered_labellings(np.zeros(3, int), ()).shape == (3, 0)


# ---------------------------------------------------------------------------------------------- overflow


def test_sums_that_overflow_are_no_hard_constraints(tmp_path):
    """1e308 + 1e308 is infinite in floating-point numbers, and infinite costs forbid: nobody asked for that."""
    more = "more than a number can hold"
    for text in ("MARKOV 1 2 2 0 0 1 1e308 1 1e308", "MARKOV 1 2 2 1 0 1 0 2 1e308 0 2 1e308 0"):
        refused(put(tmp_path / "m.uai", text), more, values="cost")
    refused(put(tmp_path / "m.qpbo", "-2 2\n1 1 1e308\n2 2 1e308"), more)
    refused(put(tmp_path / "m.qpbo", "2 2\n1 1 1e308\n1 1 1e308"), more)
    refused(put(tmp_path / "m.bq", "2 1\n1 2 1e308"), more)
    edge = "e 0 1 1e308\n"
    refused(put(tmp_path / "m.dd", f"p 2 2 2 2\na 0 0 0 1\na 1 1 1 1\n{edge}{edge}"), more)
    path = tmp_path / "m.h5"
    for kind, indices, values, record in (
        (16008, [1, 2], [1e308], [0, 0, 1, 0]),
        (16006, [2, 2], [1e308, 0.0], [0, 0, 2, 0, 1]),
        (16000, [1, 2], [1e308, 0.0], [0, 0, 1, 0]),
    ):
        G.opengm(path, {kind: (1, indices, values)}, (2, 2), record * 2)
        refused(path, more)


def test_overflow_leaves_a_model_as_it_was():
    model = tm.Model([2, 2])
    model.add_unaries([[1e308, 1.0], [np.inf, 2.0]])
    for costs, nodes in (([[1e308, 0.0]], [0]), ([[1e308, 0.0], [-1e308, 0.0], [1e308, 0.0]], [0, 0, 0])):
        with pytest.raises(tm.ModelError, match="more than a number can hold"):
            model.add_unaries(costs, nodes=nodes)
    with pytest.raises(tm.ModelError, match="more than a number can hold"):
        model.add_factors([[0], [0]], [1e200, 1.0], weights=[1.0, 1e200])
    model.add_unaries([[np.inf, 0.0], [1e308, 0.0], [1e308, 0.0]], nodes=[0, 1, 0])  # what is forbidden stays it
    assert model.unaries.tolist() == [np.inf, 1.0, np.inf, 2.0]
    model.add_constant(1e308)
    with pytest.raises(tm.ModelError, match="more than a number can hold"):
        model.add_constant(1e308)
    assert model.constant == 1e308


# ---------------------------------------------------------------------------------------------- labels and numbers


def test_label_and_evidence_files(tmp_path):
    def bad(read, name, data, match):
        path = put(tmp_path / name, data)
        with pytest.raises(tm.ModelError, match=match) as caught:
            read(path)
        assert str(caught.value).startswith(f"{path}: ") and str(caught.value).isprintable()

    def npy(header):
        text = f"{{'descr': {header[0]!r}, 'fortran_order': False, 'shape': {header[1]}, }}".ljust(117) + "\n"
        return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()

    for header in (("<i8", "(0, 1000000000000000000, 10)"), ("<U0", "(1000000000000,)"), ("<i8", f"({'1, ' * 40})")):
        bad(tm.read_labels, "m.npy", npy(header), "axes|needs|header")
    bad(tm.read_labels, "m.npy", npy(("<i8", "(1000000000000,)")), "needs 8000000000000 bytes, got 0")
    bad(tm.read_labels, "m.npy", npy(("<i8", "(-1,)")), "axes")
    bad(tm.read_labels, "m.txt", "inf 1 2", "a label")
    bad(tm.read_labels, "m.txt", "1 1e400", "label")
    bad(tm.read_labels, "m.MPE", "MPE\n1000000000000 0 1", "number of variables")
    bad(tm.read_labels, "m.MPE", "MPE\n2 0 -1", "label")
    for text in ("1000000000000 0 1", "1e300", "-1", "nan", "2 3 1 1e400 4", "1 0 1e400", "1.5 0 1", "x"):
        bad(tio.read_evidence, "m.evid", text, "expected")
    path = put(tmp_path / "m.uai", G.UAI)
    with pytest.raises(tm.ModelError, match="variable 99999999999999 does not exist"):
        tm.read(path, evidence=put(tmp_path / "m.evid", "1 99999999999999 0"))


def test_text_of_arrays(tmp_path):
    """Text in an archive is numbers, too, and not all of them are characters."""
    stream = io.BytesIO()
    np.save(stream, np.array("tightmap"))
    with zipfile.ZipFile(tmp_path / "m.npz", "w") as pack:
        pack.writestr("format.npy", stream.getvalue()[:-1] + b"\xff")
    refused(tmp_path / "m.npz", "'format': expected text, got numbers that are no characters")
    np.savez(tmp_path / "n.npz", format=np.array(b"tightmap"), version=1)
    refused(tmp_path / "n.npz", "expected numbers, got .S8|expected text")


def test_json_that_is_nested_deeply(tmp_path):
    document = {"type": "BinaryQuadraticModel", "variable_type": "BINARY", "linear_biases": [0]}
    for name in ("variable_type", "offset", "linear_biases", "type"):
        text = json.dumps({**document, name: "@"}).replace('"@"', "[" * 900 + "]" * 900)
        refused(put(tmp_path / "m.json", text), "expected|JSON")
    refused(put(tmp_path / "m.json", "1" * 5000), "JSON")
