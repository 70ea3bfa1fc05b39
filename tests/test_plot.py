"""Pictures and what notebooks show."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

import tightmap as tm
from tightmap import problems
from tightmap.view import plot


@pytest.fixture(scope="module")
def solved():
    model = problems.inpainting(12)
    return model, tm.solve(model, method="bcd", max_iterations=3, trace=True)


def test_labelling_and_comparison(solved, tmp_path):
    model, result = solved
    figure = plot.labelling(result, model=model, title="labels")
    assert figure.axes[0].images[0].get_array().shape == (12, 12)
    both = plot.comparison(
        {"bcd": result, "image": np.zeros((12, 12, 3), dtype=np.uint8), "own": np.eye(12, dtype=int)}, model=model
    )
    assert [a.get_title() for a in both.axes] == [f"bcd ({result.energy:.8g})", "image", "own"]
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")):
        plot.save(both, tmp_path / f"picture{suffix}")
        assert (tmp_path / f"picture{suffix}").read_bytes().startswith(start)
    with pytest.raises(tm.ModelError, match="written as"):
        plot.save(figure, tmp_path / "picture.doc")
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".pdf", ".png", ".svg"]  # nothing half-written is left
    with pytest.raises(tm.ModelError, match="shape="):
        plot.labelling(result)
    with pytest.raises(tm.ModelError, match="nothing"):
        plot.comparison({})


def test_convergence(solved):
    _, result = solved
    figure = plot.convergence({"one": result, "two": result})
    names = [t.get_text() for t in figure.axes[0].get_legend().get_texts()]
    assert names == ["one", "two"] and figure.axes[0].get_xscale() == "log"
    line = figure.axes[0].lines[0]
    assert line.get_ydata()[-1] == result.energy
    plot.convergence(result)


def test_convergence_without_steps(solved, tmp_path):
    """A run that recorded nothing is a point, and the picture says why; one that found nothing is words."""
    model, result = solved
    for start in (tm.solve(model, method="bcd", time_limit=0, trace=True), tm.solve(model, method="bcd")):
        figure = plot.convergence({"early": start, "whole": result})
        assert figure.axes[0].get_title() == "no steps recorded: early"
        assert figure.axes[0].lines[0].get_ydata().tolist() == [start.energy]
        assert figure.axes[0].lines[0].get_marker() == "o"
        plot.save(plot.convergence(start), tmp_path / "start.png")
    hopeless = replace(result, trace=[], energy=np.inf, lower_bound=-np.inf)
    figure = plot.convergence(hopeless)
    assert [t.get_text() for t in figure.axes[0].texts] == ["no feasible labelling and no bound"]
    plot.save(figure, tmp_path / "hopeless.png")


@pytest.mark.parametrize("value", [0.0, 1e-300, -1e-9, 1e18, 1e300])
def test_convergence_at_every_scale(solved, tmp_path, value):
    """Limits of the axis that are equal would be a warning, and an error here."""
    trace = [{"elapsed": 0.1 * k, "energy": value + k * value * 1e-15, "lower_bound": value} for k in range(3)]
    figure = plot.convergence(replace(solved[1], trace=trace, energy=value, lower_bound=value))
    low, high = figure.axes[0].get_ylim()
    assert low < value < high and high - low < max(0.5 * abs(value), 1.0)
    plot.save(figure, tmp_path / "flat.png")


def test_matching_drawing():
    left, right, truth = problems.random_points(1, points=5, outliers=1)
    labels = truth.copy()
    labels[0] = 6  # unmatched: no line
    labels[1] = truth[2]
    figure = plot.matching(left, right, labels, truth)
    styles = [line.get_linestyle() for line in figure.axes[0].lines]
    assert styles.count("--") == 1 and len(styles) == 4 + 2


def test_notebook_tables(solved):
    model, result = solved
    model.clamp({0: 3})
    for item, words in (
        (model, ["144 on a grid of 12 x 12", "up to 4", "potts factors of order 2", "264", "fixed by evidence"]),
        (result, ["bcd", f"{result.energy:.9g}", "none", "iterations"]),
    ):
        text = item._repr_html_()
        ET.fromstring(text)  # well-formed
        assert all(word in text for word in words)
