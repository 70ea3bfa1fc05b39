"""Golden files: fixture G through every reader and writer with all of its energies, hand-made files per format."""

from __future__ import annotations

import itertools
import math

import h5py
import numpy as np
import pytest

import io_fixtures as G
import tightmap as tm
from tightmap import io as tio

TEXTS = {
    "g.uai": (G.UAI, {}),
    "g.LG": (G.LG, {}),
    "cost.uai": (G.COST, {"values": "cost"}),
    "g.wcsp": (G.WCSP, {}),
    "g.cfn": (G.CFN, {}),
    "terse.cfn": (G.TERSE_CFN, {}),
}


def put(path, text):
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("layout", ["as is", "CRLF", "no last newline", "blanks"])
def test_read_fixture(tmp_path, name, layout):
    text, options = TEXTS[name]
    if layout == "CRLF":
        text = text.replace("\n", "\r\n")
    elif layout == "no last newline":
        text = text.rstrip()
    elif layout == "blanks":
        text = "\n \t" + text.replace(" ", "  \t") + "\n\n"
    model = tm.read(put(tmp_path / name, text), **options)
    np.testing.assert_allclose(G.energies(model), G.ENERGIES, rtol=0, atol=1e-12)


def test_read_fixture_h5(tmp_path):
    path = tmp_path / "g.h5"
    G.opengm(path, G.G_FUNCTIONS, G.CARDS, G.G_FACTORS)
    model = tm.read(path)
    np.testing.assert_array_equal(G.energies(model), G.ENERGIES)
    assert model.energy([0, 0, 0]) == 1 and model.energy([1, 0, 2]) == 16
    assert model.energy([0, 1, 1]) == 9 and model.energy([1, 1, 0]) == 7
    G.opengm(path, G.G_FUNCTIONS, G.CARDS, G.G_FACTORS, value_type=(), group="other")  # the old header, another name
    np.testing.assert_array_equal(G.energies(tm.read(path)), G.ENERGIES)


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".xz"])
@pytest.mark.parametrize("name", ["g.uai", "g.LG", "cost.uai", "g.h5", "g.npz", "g.wcsp", "g.cfn"])
def test_write_fixture(tmp_path, name, suffix):
    path = tmp_path / (name + suffix)
    options = {"values": "cost"} if name.startswith("cost") else {}
    tm.write(G.model(), path, **options)
    np.testing.assert_allclose(G.energies(tm.read(path, **options)), G.ENERGIES, rtol=0, atol=1e-12)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]  # no temporary file stays


def test_written_h5_is_the_golden_one(tmp_path):
    tm.write(G.model(), tmp_path / "g.h5")
    with h5py.File(tmp_path / "g.h5") as f:
        g = f["gm"]
        assert g["header"][()].tolist() == [2, 0, 3, 3, 2, 16000, 2, 16006, 1, 1]
        assert g["header"].dtype == np.uint64 and g["factors"].dtype == np.uint64
        assert g["function-id-16000/indices"][()].tolist() == [1, 2, 2, 2, 3]
        assert g["function-id-16000/values"][()].tolist() == [1, 4, 0, 3, 1, 4, 2, 5]
        assert g["function-id-16006/values"][()].tolist() == [0, 7]
        assert g["factors"][()].tolist() == G.G_FACTORS


def test_uai_meaning(tmp_path):
    path = put(tmp_path / "m.uai", "BAYES 2 2 3 2  1 0  2 0 1  2 0.25 0.75  6 1 0 0  0.5 0.25 0.25")
    model = tm.read(path)
    assert model.energy([0, 0]) == pytest.approx(-math.log(0.25))
    assert model.energy([0, 1]) == np.inf
    assert model.energy([1, 2]) == pytest.approx(-math.log(0.75 * 0.25))
    log = put(tmp_path / "m.LG", "MARKOV 1 2 1 1 0 2 -inf -2e38")
    assert np.isinf(G.energies(tm.read(log))).all()


def test_unsorted_scopes_and_three_label_counts(tmp_path):
    table = np.arange(24.0).reshape(4, 2, 3)  # on variables (2, 0, 1)
    numbers = " ".join(map(str, table.ravel()))
    tuples = "\n".join(f"{a} {b} {c} {table[a, b, c]:.0f}" for a, b, c in np.ndindex(4, 2, 3))
    path = tmp_path / "t.h5"
    sorted_table = table.transpose(1, 2, 0)
    G.opengm(path, {16000: (1, [3, 2, 3, 4], sorted_table.ravel(order="F"))}, (2, 3, 4), [0, 0, 3, 0, 1, 2])
    models = [
        tm.read(put(tmp_path / "t.uai", f"MARKOV 3 2 3 4 1 3 2 0 1 24 {numbers}"), values="cost"),
        tm.read(put(tmp_path / "t.wcsp", f"t 3 4 1 99 2 3 4 3 2 0 1 0 24 {tuples}")),
        tm.read(put(tmp_path / "t.cfn", f"{{problem {{name t mustbe <99}} variables {{2 3 4}} functions "
                                        f"{{f {{scope [2 0 1] costs [{numbers}]}}}}}}")),
        tm.read(path),
    ]  # fmt: skip
    for suffix in (".h5", ".uai", ".LG", ".npz", ".wcsp", ".cfn"):
        tm.write(models[0], tmp_path / f"again{suffix}")
        models.append(tm.read(tmp_path / f"again{suffix}"))
    for model in models:
        for x in G.labellings(model):
            assert model.energy(x) == pytest.approx(table[x[2], x[0], x[1]], abs=1e-11)


def test_every_opengm_function(tmp_path):
    """One factor of every readable type, against its formula."""
    inf = np.inf
    patterns = [0, 1, 2, 4, 7]  # masks of equal pairs (1,0), (2,0), (2,1) that occur for three variables
    values = [10.0, 20.0, 30.0, 40.0, 50.0]
    weights = np.array([[1.0, -0.5], [0.25, 2.0]])
    groups = {
        16000: (2, [0, 2, 3, 3], [5.0, *range(9)]),
        16001: (2, [3, 3, 3, 3, 2, 5, 19, 1, 3, 1, 2], [1.5, 7, inf, 0.0, 4.0]),
        16002: (1, [3, 3], [2.0]),
        16003: (2, [3, 3, 3, 3], [1.0, 3.0, -2.0, 3.0]),
        16004: (1, [3, 3], [2.0]),
        16005: (1, [3, 3], [2.5, 3.0]),
        16006: (2, [3, 3, 3, 3], [0.5, 2.0, 1.0, inf]),
        16007: (2, [3, 3, 3, 3, 2, 3, 3], [0.5, 2.0, inf, 0.25]),
        16008: (1, [2, 3, 3], [0.125]),
        16009: (1, [], [1.0, 2.0, 3.0]),
        16010: (2, [9, 9], [3.0, 2.0, 1.0, 0.0, 5.0, 0.0]),
        16011: (2, [3, 3, 3, 3, 2, 3, 3], [*values, 6.0, 8.0]),
        16033: (1, [2, 2, 3], [*weights.ravel(), 0.5, 2.0]),
    }
    ids = list(groups)

    def foe(a, b):
        return sum(alpha * math.log(1 + 0.5 * (w @ [a, b]) ** 2) for w, alpha in zip(weights, [0.5, 2.0], strict=True))

    def mask(a, b, c):
        return (a == b) + 2 * (a == c) + 4 * (b == c)

    cases = [
        (16000, 0, [], lambda x: 5.0),
        (16000, 1, [0, 2], lambda x: x[0] + 3 * x[2]),
        (16001, 0, [0, 1, 2], lambda x: {5: 7.0, 19: inf}.get(x[0] + 3 * x[1] + 9 * x[2], 1.5)),
        (16001, 1, [1], lambda x: 4.0 if x[1] == 2 else 0.0),
        (16002, 0, [0, 1], lambda x: 2 * abs(x[0] - x[1])),
        (16003, 0, [0, 1], lambda x: 3 * min(abs(x[0] - x[1]), 1)),
        (16003, 1, [0, 1], lambda x: -6.0),
        (16004, 0, [1, 2], lambda x: 2 * (x[1] - x[2]) ** 2),
        (16005, 0, [0, 2], lambda x: 3 * min((x[0] - x[2]) ** 2, 2.5)),
        (16006, 0, [0, 2], lambda x: 0.5 if x[0] == x[2] else 2.0),
        (16006, 1, [0, 2], lambda x: 1.0 if x[0] == x[2] else inf),
        (16007, 0, [0, 1, 2], lambda x: 0.5 if x[0] == x[1] == x[2] else 2.0),
        (16007, 1, [0, 1], lambda x: inf if x[0] == x[1] else 0.25),
        (16008, 0, [0, 1], lambda x: 0.125),
        (16009, 0, [1], lambda x: x[1] + 1.0),
        (16010, 1, [2], lambda x: [0.0, 5.0, 0.0][x[2]]),
        (16010, 0, [0], lambda x: 3.0 - x[0]),
        (16011, 0, [0, 1, 2], lambda x: values[patterns.index(mask(*x))]),
        (16011, 1, [1, 2], lambda x: 8.0 if x[1] == x[2] else 6.0),
        (16033, 0, [1, 2], lambda x: foe(x[1], x[2])),
    ]
    for kind, function, scope, formula in cases:
        path = tmp_path / "one.h5"
        extra = [0, ids.index(16010), 1, 0] if (kind, function) == (16010, 1) else []  # so that all sizes are known
        G.opengm(path, groups, (3, 3, 3), [function, ids.index(kind), len(scope), *scope, *extra])
        model = tm.read(path)
        for x in itertools.product(range(3), repeat=3):
            expected = formula(x) + (3.0 - x[0] if extra else 0.0)
            assert model.energy(x) == pytest.approx(expected, abs=1e-12), (kind, function, x)


def test_opengm_hard_threshold(tmp_path):
    path = tmp_path / "m.h5"
    G.opengm(path, {16000: (1, [1, 3], [0, 1e5, 3])}, (3,), [0, 0, 1, 0])
    assert tm.read(path).energy([1]) == 1e5
    assert tm.read(path, hard_threshold=1e5).energy([1]) == np.inf


def test_wcsp_features(tmp_path):
    text = """w 3 4 8 100
    4 4 4
    0 5 0
    -2 0 1 0 1
    3 3 100
    2 2 1 0 -1
    2 0 1 -1 >= 1 2
    2 0 1 -1 = 0 1
    2 1 2 -1 disj 2 3 11
    1 2 9 1
    0 1
    2 0 2 -1 < 0 9
    """
    model = tm.read(put(tmp_path / "w.wcsp", text))

    def hinge(v, most):
        return np.inf if v > most else max(0, v)

    for x, y, z in itertools.product(range(4), repeat=3):
        e = 5.0 + (np.inf if x == y == 3 else 0) + (np.inf if z == y == 3 else 0)
        e += hinge(y + 1 - x, 2) + (abs(y - x) if abs(y - x) <= 1 else np.inf)
        e += 0 if y >= z + 3 or z >= y + 2 else 11
        e += (1 if z == 0 else 9) + hinge(x + 1 - z, 9)
        assert model.energy([x, y, z]) == e, (x, y, z)
    with pytest.raises(tm.ModelError, match="salldiff"):
        tm.read(put(tmp_path / "g.wcsp", "g 2 2 1 9 2 2 2 0 1 -1 salldiff var 3"))


def test_cfn_features(tmp_path):
    text = """# a comment line
    { problem: { name: c, mustbe: ">-100.0" },
      variables: { a: [lo hi], b: [u v w], 2 },
      functions: {
        k: { scope: [], costs: [2.5] },
        use: { scope: [b x2], costs: later },
        later: { scope: [b 2], costs: [1 2 3 4 5 -inf] },
        later: { scope: [a], defaultcost: 1.5, costs: [hi -3] },
      } }"""
    text = text.replace("later: { scope: [a]", "other: { scope: [a]")
    model = tm.read(put(tmp_path / "c.cfn", text))
    table = [[1, 2], [3, 4], [5, -np.inf]]
    for a, b, c in np.ndindex(2, 3, 2):
        assert model.energy([a, b, c]) == -(2.5 + 2 * table[b][c] + [1.5, -3][a])


def test_dd(tmp_path):
    path = put(tmp_path / "m.dd", G.DD)
    model = tm.read(path)
    assert model.cardinalities.tolist() == [3, 2]  # right points 0, 1 or none; right point 1 or none
    assert G.energies(model).reshape(3, 2).tolist() == [[-5, -1], [np.inf, -2], [-3, 0]]
    full = tm.read(path, unmatched=False)
    assert G.energies(full).reshape(2, 1).tolist() == [[-5], [np.inf]]
    with pytest.warns(tio.FormatWarning, match="exclude each other"):
        tm.read(put(path, G.DD.replace("p 2 2 3 1", "p 2 2 3 2") + "e 1 2 5\n"))
    with pytest.warns(tio.FormatWarning, match="promises"):
        tm.read(put(path, G.DD.replace("p 2 2 3 1", "p 2 2 4 1")))


def test_qubo_formats(tmp_path):
    def all_energies(name, text):
        return G.energies(tm.read(put(tmp_path / name, text))).tolist()

    twice = [0, -2, 1, -1 + 2 * 3]  # off-diagonals count twice
    assert all_energies("m.qpbo", "2 3\n1 1 1\n2 2 -2\n1 2 3\n") == twice
    assert all_energies("m.qpbo", "2 -3\n1 1 1\n2 2 -2\n1 2 3\n") == [-e for e in twice]
    assert all_energies("m.qpbo", "-2 2\n1 1 1\n1 2 3\n") == [7, -5, -5, 7]
    assert all_energies("m.bq", "# c\n2 3\n1 1 1\n2 2 -2\n1 2 3\n") == twice
    once = [0, -2, 1, -1 + 3]
    assert all_energies("m.qubo", "c hello\np qubo 0 2 2 1\n0 0 1\n1 1 -2\n0 1 3\n") == once
    assert all_energies("m.coo", "# vartype=BINARY\n0 0 1\n1 1 -2\n0 1 3\n") == once
    assert all_energies("m.coo", "# vartype=SPIN\n0 0 1\n0 1 3\n") == [2, -4, -2, 4]
    assert all_energies("m.mc", "# c\n3 2\n1 2 5\n2 3 -1\n") == [0, 1, -4, -5, -5, -4, 1, 0]
    assert all_energies("m.txt", "2 1\n1 2 5") == [0, -5, -5, 0]
    model = tm.Model([2, 2, 2])
    model.add_constant(1.25)
    model.add_unaries([[0, 1], [2, 0], [0, 0]])
    model.add_factors([[2, 0], [1, 1]], np.array([[1.0, 2.0], [-3.0, 7.0]]))
    for suffix in (".json", ".qubo"):
        tm.write(model, tmp_path / f"w{suffix}")
        np.testing.assert_allclose(G.energies(tm.read(tmp_path / f"w{suffix}")), G.energies(model), atol=1e-12)
    model.clamp({0: 1})
    with pytest.raises(tm.ModelError, match=r"\+inf"):
        tm.write(model, tmp_path / "w.json")


def test_grid_npz(tmp_path):
    rng = np.random.default_rng(0)
    data, hw, vw = rng.integers(0, 9, (3, 4, 5)), rng.integers(1, 4, (3, 3)), rng.integers(1, 4, (2, 4))
    gap = np.abs(np.subtract.outer(np.arange(5), np.arange(5)))
    cases = {
        "POTTS": 10 * (gap > 0),
        "LINEAR": 3 * np.minimum(gap, 2),
        "QUADRATIC": 2 * np.minimum(gap**2, 7),
        "DENSE": np.arange(25).reshape(5, 5),
    }
    for kind, table in cases.items():
        np.savez(tmp_path / "m.npz", D=data, hw=hw, vw=vw, V=table)
        model = tm.read(tmp_path / "m.npz")
        assert model.grid_shape == (3, 4) and [b.kind.name for b in model.blocks] == [kind]
        for _ in range(5):
            x = rng.integers(0, 5, (3, 4))
            e = np.take_along_axis(data, x[..., None], 2).sum()
            e += (hw * table[x[:, :-1], x[:, 1:]]).sum() + (vw * table[x[:-1], x[1:]]).sum()
            assert model.energy(x) == e


def test_labels_and_evidence(tmp_path):
    def labels(text, name="x.MPE"):
        return tm.read_labels(put(tmp_path / name, text)).tolist()

    assert labels("MPE\n3 0 2 1\n") == [0, 2, 1]
    assert labels("MAP\n1\n3 0 2 1") == [0, 2, 1]  # the layout of 2010
    assert labels("MPE\n3 0 0 0\n-BEGIN-\n3 0 2 1\n-BEGIN-\n3 1 1 1\n") == [1, 1, 1]
    assert labels("MPE\n1 4") == [4]
    assert labels("0 2 1\n", "x.txt") == [0, 2, 1]
    for name in ("y.MPE", "y.MAP", "y.txt", "y.npy", "y.MPE.gz"):
        tm.write_labels(np.array([[0, 2], [1, 3]]), tmp_path / name)
        assert tm.read_labels(tmp_path / name).tolist() == [0, 2, 1, 3]
    assert (tmp_path / "y.MAP").read_text() == "MAP\n4 0 2 1 3\n"
    for bad in ("MPE\n3 0 1", "MPE\n2 0 1 1", "MAR\n1 2 0.5 0.5", "MPE\n2 0 -1", "MPE\n2 0 1.5"):
        with pytest.raises(tm.ModelError, match=r"x\.MPE"):
            labels(bad)

    def evidence(text, **options):
        return tio.read_evidence(put(tmp_path / "m.evid", text), **options)

    assert evidence("0") == {} and evidence("1 0") == {} and evidence("") == {}
    assert evidence("2\n3 1\n5 0\n") == {3: 1, 5: 0}
    assert evidence("2 3 1 5 0") == {3: 1, 5: 0}
    assert evidence("1\n2 3 1 5 0\n") == {3: 1, 5: 0}  # 2010: one sample
    assert evidence("2\n1 3 1\n2 3 0 4 1\n", sample=1) == {3: 0, 4: 1}
    with pytest.warns(tio.FormatWarning, match="both layouts"):
        assert evidence("2 0 1 5 0") == {0: 1, 5: 0}
    for bad in ("2 3 1", "1 0 0 0", "x", "1 3 -1", "2 1 0 1 1"):
        with pytest.raises(tm.ModelError):
            evidence(bad)
    tio.write_evidence({4: 1, 2: 0}, tmp_path / "w.evid")
    assert tio.read_evidence(tmp_path / "w.evid") == {2: 0, 4: 1}
    model = tm.read(put(tmp_path / "g.LG", G.LG), evidence=put(tmp_path / "g.evid", "1 0 1"))
    assert model.energy([0, 0, 0]) == np.inf and model.energy([1, 1, 0]) == 7
    with pytest.raises(tm.ModelError, match=r"g\.evid.*variable 7"):
        tm.read(tmp_path / "g.LG", evidence=put(tmp_path / "g.evid", "1 7 1"))
