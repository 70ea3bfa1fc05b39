"""Arguments of the wrong type: one ModelError that says what was expected, never a traceback from inside."""

from __future__ import annotations

import numpy as np
import pytest

import io_fixtures as G
import tightmap as tm
from tightmap import io as tio


@pytest.mark.parametrize(
    "path", [None, 3, 2.5, b"m.uai", ["m.uai"], {"m.uai"}, object()], ids=lambda p: type(p).__name__
)
def test_paths(tmp_path, path):
    expected = f"expected a path, got {type(path).__name__}"
    for call in (
        lambda: tm.read(path),
        lambda: tm.write(G.model(), path),
        lambda: tm.read_labels(path),
        lambda: tm.write_labels([0, 1], path),
        lambda: tio.read_evidence(path),
        lambda: tio.write_evidence({0: 1}, path),
    ):
        with pytest.raises(tm.ModelError, match=expected):
            call()


@pytest.mark.parametrize("name", ["", ".", "a\0b.uai", "x" * 5000 + ".uai", "\ud800.uai"])
def test_strange_names(name):
    with pytest.raises(
        tm.ModelError, match=r"this is a folder" if name in ("", ".") else r"cannot be read|no such file"
    ):
        tm.read(name)


def test_options(tmp_path):
    G.opengm(tmp_path / "m.h5", G.G_FUNCTIONS, G.CARDS, G.G_FACTORS)
    for threshold in ("a", [1.0], -1.0, 0, float("nan"), {}):
        with pytest.raises(tm.OptionError, match="hard_threshold: expected a positive number"):
            tm.read(tmp_path / "m.h5", hard_threshold=threshold)
    (tmp_path / "m.evid").write_text("1 0 1")
    for sample in (1, -1, "0", None, 0.0):
        with pytest.raises(tm.ModelError, match="does not exist, the file has 1"):
            tio.read_evidence(tmp_path / "m.evid", sample=sample)


def test_what_is_written(tmp_path):
    for what in (None, {}, "model", np.zeros(3)):
        with pytest.raises(tm.ModelError, match=f"expected a Model to write, got {type(what).__name__}"):
            tm.write(what, tmp_path / "m.uai")
    for labels in (None, "ab", [0.5], [[0], [1, 2]], {0: 1}):
        with pytest.raises(tm.ModelError, match="labels: expected integers"):
            tm.write_labels(labels, tmp_path / "m.MPE")
    for evidence in (None, 5, {0: "a"}, {"0": 1}, [(0, 1, 2)], {0: 0.5}, {-1: 0}, {2**80: 0}):
        with pytest.raises(tm.ModelError, match="evidence: expected"):
            tio.write_evidence(evidence, tmp_path / "m.evid")
    assert list(tmp_path.iterdir()) == []  # nothing is left behind
    tio.write_evidence([(3, 7), (1, 2)], tmp_path / "m.evid")
    assert tio.read_evidence(tmp_path / "m.evid") == {1: 2, 3: 7}


WRONG = [
    5,
    None,
    "01",
    b"01",
    [0, 1],
    [(0,)],
    [(0, 1, 1)],
    {0: None},
    {0: "1"},
    {0: 1.0},
    {"x": 0},
    {(0, 1): 0},
    {0: [1]},
    [None],
    np.array([0, 1]),
    np.array([[0.0, 1.0]]),
    np.array([["0", "1"]]),
    np.zeros((1, 3), dtype=int),
    {0: 2**70},
    {2**70: 0},
    object(),
]


@pytest.mark.parametrize("evidence", WRONG, ids=lambda e: f"{type(e).__name__}")
def test_evidence(evidence):
    model = tm.Model([2, 2, 3])
    with pytest.raises(tm.ModelError, match=r"evidence: expected \{variable: label\} or pairs"):
        model.clamp(evidence)
    assert (model.clamped == -1).all()


def test_evidence_of_the_wrong_size():
    model = tm.Model([2, 2, 3])
    for evidence, match in (
        ({3: 0}, r"variable 3 does not exist \(the model has 3\)"),
        ({-1: 0}, "variable -1 does not exist"),
        ({2: 3}, r"variable 2 has labels 0\.\.2, got 3"),
        ({2: -1}, r"variable 2 has labels 0\.\.2, got -1"),
        ([(1, 0), (1, 1)], "variable 1 is given both 1 and 0"),
        (np.array([[0, 0], [2, 9]]), r"variable 2 has labels 0\.\.2, got 9"),
    ):
        with pytest.raises(tm.ModelError, match=match):
            model.clamp(evidence)
        assert (model.clamped == -1).all()  # all of it or nothing
    model.clamp({0: 1})
    with pytest.raises(tm.ModelError, match="variable 0 is given both 1 and 0"):
        model.clamp({0: 0})


def test_evidence_of_every_good_type():
    for evidence in (
        {0: 1, 2: 2},
        [(0, 1), (2, 2), (0, 1)],
        iter([(0, 1), (2, 2)]),
        np.array([[0, 1], [2, 2]], dtype=np.uint8),
        {np.int64(0): np.int8(1), 2: 2},
    ):
        model = tm.Model([2, 2, 3])
        model.clamp(evidence)
        assert model.clamped.tolist() == [1, -1, 2]
    for nothing in ({}, [], np.zeros((0, 2), dtype=int), np.array([])):
        model.clamp(nothing)
    assert model.clamped.tolist() == [1, -1, 2]


def test_evidence_of_read(tmp_path):
    path = tmp_path / "m.uai"
    path.write_text(G.UAI)
    assert tm.read(path, evidence=[(0, 1)]).clamped.tolist() == [1, -1, -1]
    for wrong in (5, b"m.evid", [0], {0: "a"}):
        with pytest.raises(tm.ModelError, match="evidence: expected"):
            tm.read(path, evidence=wrong)
