"""solve_rows with arguments that cannot be: one sentence before the run, and no file of the user's is touched."""

from __future__ import annotations

import os
import tempfile

import numpy as np
import pytest

import tightmap as tm

FAST = {"tile": 8, "growth": 1.2, "rounds": 2}


def costs(height=20, width=6, labels=3):
    return np.random.default_rng(0).random((height, width, labels)).astype(np.float32)


def solve_rows(unaries=None, weights=0.3, **options):
    return tm.scale.solve_rows(costs() if unaries is None else unaries, weights, **(FAST | options))


@pytest.mark.parametrize("kind", ["path", "link", "mapped", "weights", "hdf5"])
def test_labels_never_replace_what_is_read(tmp_path, kind):
    given, weights = tmp_path / "u.npy", 0.3
    np.save(given, costs())
    target = given
    if kind == "link":
        target = tmp_path / "link.npy"
        target.symlink_to(given)
    unaries = np.load(given, mmap_mode="r") if kind == "mapped" else str(given)
    if kind == "weights":
        target = weights = tmp_path / "w.npy"
        np.save(weights, np.ones((20, 2, 6)))
    if kind == "hdf5":
        h5py = pytest.importorskip("h5py")
        target = tmp_path / "u.h5"
        with h5py.File(target, "w") as file:
            file["costs"] = costs()
        unaries = f"{target}:costs"
    before = target.read_bytes()
    with pytest.raises(tm.OptionError, match="what the run reads"):
        solve_rows(unaries, weights, labels=target)
    assert target.read_bytes() == before


@pytest.mark.parametrize("path", ["missing/l.npy", ".", "/dev/full", "", 3])
def test_labels_that_cannot_be_written_are_refused_before_the_run(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    steps = []
    with pytest.raises(tm.OptionError, match="labels"):
        solve_rows(labels=path, progress=steps.append)
    assert not steps and os.listdir(tmp_path) == []


def test_a_full_disk_is_known_before_the_run(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    steps = []
    with pytest.raises(tm.OptionError, match="No space left"):
        solve_rows(labels=tmp_path / "l.npy", progress=steps.append)
    assert not steps and os.listdir(tmp_path) == []


def test_a_run_that_fails_leaves_the_old_labels(tmp_path):
    target = tmp_path / "l.npy"
    np.save(target, np.zeros(3))
    before = target.read_bytes()

    def stop(position):
        raise OSError("of the user's own")

    with pytest.raises(OSError, match="of the user's own"):
        solve_rows(labels=target, progress=stop)
    assert target.read_bytes() == before and os.listdir(tmp_path) == ["l.npy"]


def test_labels_in_a_file_are_those_in_memory(tmp_path):
    found = solve_rows(labels=tmp_path / "l.npy")
    assert isinstance(found.labels, np.memmap) and found.digest == solve_rows().digest
    assert (np.load(tmp_path / "l.npy") == solve_rows().labels).all()


def test_more_labels_than_sixteen_bits():
    unary = np.ones((2, 2, 70_000), dtype=np.float32)
    unary[:, :, 69_999] = 0.0
    assert (solve_rows(unary, tile=2, rounds=0).labels == 69_999).all()


WRONG_OPTIONS = [
    ("tile", [0, -1, 1, 1.5, "8", None]),
    ("workers", [0, "a", 1.5, None]),
    ("restarts", [0, -1, "a", None]),
    ("rounds", [-1, 1.5, "a", None]),
    ("seed", [-1, "a", None]),
    ("growth", [0, np.nan, np.inf, "a", None, [1.1]]),
    ("memory", [-1, "a", np.nan, np.inf, True]),
    ("neighbours", [5, "4", 4.0, None]),
    ("progress", [3]),
]


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG_OPTIONS for value in values])
def test_wrong_options(name, value):
    folder = set(os.listdir(tempfile.gettempdir()))
    with pytest.raises(tm.OptionError, match=name):
        solve_rows(**{name: value})
    assert not [f for f in set(os.listdir(tempfile.gettempdir())) - folder if f.startswith("tightmap-")]


@pytest.mark.parametrize("table", [(), None, "x", (0, np.inf), (0, np.nan), (0, 1e300), (0, "a")])
def test_wrong_tables(table):
    with pytest.raises(tm.ModelError, match=r"table|cost of a difference"):
        solve_rows(table=table)


@pytest.mark.parametrize("weights", [None, {}, np.inf, 1e300, ["a", "b"], "none.npy", 1j])
def test_wrong_weights(weights):
    with pytest.raises(tm.ModelError, match=r"weights|none\.npy"):
        solve_rows(weights=weights)


@pytest.mark.parametrize(
    "unaries",
    [
        costs() * 1j,
        np.full((20, 6, 3), 1e35),
        np.full((20, 6, 3), "a"),
        np.zeros((20, 6, 3), "m8[s]"),
        np.ma.masked_array(costs(), costs() > 0.5),
        lambda first, last: costs()[first:last] * 1j,
        lambda first, last: np.ma.masked_array(costs()[first:last], True),
        [[1, 2], [3]],
    ],
)
@pytest.mark.filterwarnings("error")
def test_what_is_no_cost_is_refused(unaries):
    with pytest.raises(tm.ModelError):
        solve_rows(unaries, shape=(20, 6, 3))


@pytest.mark.parametrize("shape", ["abc", (40.0, 30, 3), None, 3])
def test_wrong_shapes_of_functions(shape):
    with pytest.raises(tm.ModelError, match="shape"):
        solve_rows(lambda first, last: costs()[first:last], shape=shape)


def test_files_that_cannot_be_read(tmp_path):
    h5py = pytest.importorskip("h5py")
    (tmp_path / "text.npy").write_text("no numbers")
    (tmp_path / "text.h5").write_text("no numbers")
    np.save(tmp_path / "objects.npy", np.array([None]), allow_pickle=True)
    (tmp_path / "short.npy").write_bytes(
        (np.save(tmp_path / "u.npy", costs()), (tmp_path / "u.npy").read_bytes())[1][:-8]
    )
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file.create_group("group")
    for name in ("text.npy", "objects.npy", "short.npy", "text.h5:costs", "u.h5:costs", "u.h5:group", "none.h5:costs"):
        with pytest.raises(tm.ModelError, match=name.split(":")[0].replace(".", r"\.")):
            solve_rows(tmp_path / name)
    with pytest.raises(tm.ModelError, match="zarr"):
        solve_rows(tmp_path / "none.zarr")
