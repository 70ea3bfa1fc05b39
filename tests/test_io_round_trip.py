"""Round trips keep every energy, the forbidden labellings, and what a format can keep of the structure."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import io_fixtures as G
import tightmap as tm
from problems import models, random_model
from tightmap.factors.pattern import bell

CHAINS = [(".h5", ".uai", ".npz"), (".npz", ".LG", ".h5"), (".uai", ".h5.gz", ".LG.xz")]


def same_energies(a: tm.Model, b: tm.Model, tolerance: float = 1e-9) -> None:
    assert a.cardinalities.tolist() == b.cardinalities.tolist()
    before, after = G.energies(a), G.energies(b)
    np.testing.assert_array_equal(np.isinf(before), np.isinf(after))
    finite = np.isfinite(before)
    np.testing.assert_allclose(after[finite], before[finite], rtol=0, atol=tolerance)


def through(model: tm.Model, suffix: str, **options) -> tm.Model:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"m{suffix}"
        tm.write(model, path, **options)
        return tm.read(path)


@given(model=models(max_variables=4, max_order=4, hard=0.2), chain=st.sampled_from(CHAINS), held=st.booleans())
def test_chains_of_formats(model, chain, held):
    """Every kind of factor, repeated variables, one-label variables, evidence, +inf: h5, uai, npz, LG in turn."""
    if held:
        model.clamp({0: int(model.cardinalities[0]) - 1})
    current = model
    for suffix in chain:
        current = through(current, suffix)
        same_energies(model, current)


@given(model=models(max_variables=4, max_order=3, hard=0.2), suffix=st.sampled_from([".wcsp", ".cfn", ".cfn.bz2"]))
@settings(max_examples=40)
def test_toulbar2_formats(model, suffix):
    """Costs are rounded to 9 digits there: half a unit for every factor."""
    same_energies(model, through(model, suffix), tolerance=1e-8)
    rounded = through(model, suffix, digits=0)
    same_energies(model, rounded, tolerance=0.5 * (model.num_factors + model.num_variables + 1) + 1e-9)


def test_native_keeps_everything():
    rng = np.random.default_rng(1)
    seen = set()
    for _ in range(20):
        model = random_model(rng, n=4, labels=3, factors=8, order=4, hard=0.2)
        model.clamp({1: 0})
        again = through(model, ".npz", compress=bool(rng.integers(2)))
        assert again.constant == model.constant and again.clamped.tolist() == model.clamped.tolist()
        np.testing.assert_array_equal(again.unaries, model.unaries)
        assert [type(b) for b in again.blocks] == [type(b) for b in model.blocks]
        for a, b in zip(again.blocks, model.blocks, strict=True):
            seen.add(b.kind)
            pairs = {"scopes": (a.scopes, b.scopes), "weights": (a.weights, b.weights)}
            pairs |= {k: (v, b.parameters[k]) for k, v in a.parameters.items()}
            for x, y in pairs.values():
                np.testing.assert_array_equal(x, y)
    assert len(seen) == 8, "every kind of factor"
    grid = tm.Model.grid(2, 3, 2)
    grid.add_potts(grid.edges(), 2.0)
    assert through(grid, ".npz").grid_shape == (2, 3)


def test_h5_keeps_structure_and_sharing(tmp_path):
    model = tm.Model(np.full(6, 3))
    edges = np.array([[0, 1], [2, 1], [3, 4]])
    model.add_potts(edges, [1.0, 2.0, 1.0])
    model.add_truncated_linear(edges, 2.0, [1.0, np.inf, 2.0])
    model.add_truncated_quadratic(edges, 2.0, [1.0, np.inf, 2.0])
    model.add_pn_potts([[2, 0, 1]], [1.5])
    model.add_pn_potts([[5, 3, 4]], [1.5], [0.0, 1.0, 2.0])
    model.add_label_patterns([[5, 0, 3, 1]], np.arange(float(bell(4))), [2.0])
    model.add_sparse([[4, 2, 0]], [[0, 1, 2], [2, 2, 0]], [1.0, np.inf], default=0.5)
    model.add_factors(np.array([[0, 1], [1, 2], [2, 1]]), np.arange(9.0).reshape(3, 3))
    again = through(model, ".h5")
    rng = np.random.default_rng(0)
    for _ in range(200):
        x = rng.integers(0, 3, 6)
        assert again.energy(x) == pytest.approx(model.energy(x), abs=1e-12)
    kinds = {b.kind.name for b in again.blocks}
    assert kinds == {"POTTS", "LINEAR", "QUADRATIC", "PN_POTTS", "SPARSE", "PATTERN", "DENSE"}
    dense = next(b for b in again.blocks if b.kind.name == "DENSE")
    assert len(dense) == 3 and len(dense.tables) == 2  # the shared table, and its transpose for the scope (2, 1)


def test_wide_energies_and_constants(tmp_path):
    model = tm.Model([2, 2])
    model.add_unaries([[0.0, 699.0], [1000.0, 1500.0]])
    model.add_constant(-123456.75)
    same_energies(model, through(model, ".uai"), tolerance=1e-7)
    assert G.energies(through(model, ".LG")).tolist() == G.energies(model).tolist()
    model.add_factors([[0, 1]], [[0.0, 1.0], [2.0, 800.0]])
    with pytest.raises(tm.ModelError, match=r"range over 800.*\.LG or \.h5"):
        tm.write(model, tmp_path / "m.uai")
    assert not list(tmp_path.iterdir())
    forbidden = tm.Model([2])
    forbidden.add_constant(np.inf)
    for suffix in (".uai", ".LG", ".h5", ".npz", ".wcsp", ".cfn"):
        assert np.isinf(G.energies(through(forbidden, suffix))).all()
    for suffix in (".uai", ".LG", ".h5", ".npz", ".wcsp", ".cfn"):
        assert through(tm.Model([]), suffix).num_variables == 0
        lonely = through(tm.Model([1, 5, 2]), suffix)  # one label, in no factor
        assert lonely.cardinalities.tolist() == [1, 5, 2] and not G.energies(lonely).any()


@pytest.mark.parametrize("suffix", [".npz", ".h5", ".LG", ".uai", ".wcsp", ".cfn"])
@pytest.mark.parametrize("scale", [1e-300, 1e-12, 1e-8, 1e-5, 1.0, 1e40, 1e300])
def test_costs_of_any_size_survive_or_are_refused(scale, suffix, tmp_path):
    """A file that says nothing of the model, or forbids what was only dear, would be worse than none."""
    rng = np.random.default_rng(0)
    model = tm.Model([2, 3])
    model.add_unaries([scale * rng.normal(size=2), scale * rng.normal(size=3)])
    model.add_factors([[1, 0]], scale * rng.normal(size=(3, 2)))
    every = [model.energy(x) for x in np.indices((2, 3)).reshape(2, -1).T]
    path = tmp_path / f"m{suffix}"
    try:
        tm.write(model, path)
    except tm.ModelError:
        held = {
            ".uai": (1e-5, 1.0),
            ".wcsp": (1e-8, 1e-5, 1.0),
            ".cfn": (1e-8, 1e-5, 1.0),
            ".LG": (1e-300, 1e-12, 1e-8),
        }
        assert suffix in held and scale not in held[suffix]
        return
    back = tm.read(path)
    found = [back.energy(x) for x in np.indices((2, 3)).reshape(2, -1).T]
    digits = 1e-6 if suffix in (".uai", ".wcsp", ".cfn") else 1e-12
    np.testing.assert_allclose(found, every, rtol=0.0, atol=digits * scale)


@pytest.mark.parametrize("suffix", [".qubo", ".json"])
def test_large_binary_costs(suffix, tmp_path):
    model = tm.Model([2, 2])
    model.add_factors([[0, 1]], 1e301 * np.array([[0.0, 1.0], [-2.0, 5.0]]))
    tm.write(model, tmp_path / f"m{suffix}")
    back = tm.read(tmp_path / f"m{suffix}")
    assert [back.energy(x) for x in ([0, 0], [0, 1], [1, 0], [1, 1])] == pytest.approx([0.0, 1e301, -2e301, 5e301])


def test_too_large_to_expand(tmp_path):
    model = tm.Model(np.full(3, 500))
    model.add_second_difference([[0, 1, 2]], [1.0], np.zeros(1500))
    for suffix in (".h5", ".uai", ".LG", ".wcsp", ".cfn"):
        with pytest.raises(tm.ModelError, match=r"1\.25\d*e\+08 table entries.*\.npz"):
            tm.write(model, tmp_path / f"m{suffix}")
    assert through(model, ".npz").blocks[0].kind.name == "SECOND_DIFFERENCE"
    assert not list(tmp_path.iterdir())


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "m.uai"
    tm.write(G.model(), path)
    before = path.read_bytes()
    bad = tm.Model([2])
    bad.add_unaries([[0.0, 5000.0]])
    with pytest.raises(tm.ModelError):
        tm.write(bad, path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
    link = tmp_path / "link.uai"
    link.symlink_to(path)
    tm.write(tm.Model([3]), link)
    assert link.is_symlink() and tm.read(path).cardinalities.tolist() == [3]
