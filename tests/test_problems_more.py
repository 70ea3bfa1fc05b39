"""Builders of matching, segmentation and second-order stereo problems against energies written out by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tightmap as tm
from conftest import data_file
from tightmap import problems

# ---------------------------------------------------------------------- matching


@pytest.mark.parametrize("unmatched", [None, 0.7])
def test_matching_energy_by_hand(unmatched):
    rng = np.random.default_rng(3)
    costs = rng.normal(size=(3, 4))
    costs[1, 2] = np.inf
    pairs = np.array([[0, 1], [2, 0]])  # 1 and 2 have no costs together, only the constraint
    tables = rng.normal(size=(2, 4, 4))
    model = problems.matching(costs, pairs, tables, unmatched)
    for labels in itertools.product(range(4 if unmatched is None else 5), repeat=3):
        taken = [a for a in labels if a < 4]
        expected = sum(costs[i, a] if a < 4 else unmatched for i, a in enumerate(labels))
        for (i, j), table in zip(pairs, tables, strict=True):
            if labels[i] < 4 and labels[j] < 4:
                expected += table[labels[i], labels[j]]
        if len(set(taken)) < len(taken):
            expected = np.inf
        assert model.energy(np.array(labels)) == pytest.approx(expected, abs=1e-12)


def test_matching_refuses():
    for arguments, message in [
        ((np.zeros(3),), "left points, right points"),
        ((np.zeros((3, 2)),), "set unmatched"),
        ((np.zeros((2, 2)), [[0, 1]], np.zeros((2, 2, 2))), "pair_costs"),
        ((np.zeros((2, 2)), [[0, 0]], np.zeros((1, 2, 2))), "different left points"),
    ]:
        with pytest.raises(tm.ModelError, match=message):
            problems.matching(*arguments)


def test_points_without_noise_match_for_free():
    left, right, truth = problems.random_points(seed=5, noise=0.0)
    model = problems.match_points(left, right)
    assert model.energy(truth) == pytest.approx(0.0, abs=1e-9)
    other = truth.copy()
    other[[0, 1]] = truth[[1, 0]]
    assert model.energy(other) > 0.01
    other[0] = other[1]
    assert model.energy(other) == np.inf


@pytest.mark.data
def test_matching_file_has_the_published_scale():
    model = problems.read_matching(data_file("matching/matching0.dd"))
    assert (model.num_variables, model.max_labels, model.constant) == (19, 19, 190.0)
    optimum = [2, 13, 12, 16, 11, 7, 5, 1, 9, 6, 10, 3, 18, 4, 15, 14, 17, 0, 8]
    assert model.energy(np.array(optimum)) == pytest.approx(19.3629, abs=5e-5)  # published: 19.36, proven
    assert model.energy(np.zeros(19, dtype=np.int64)) == np.inf


# ---------------------------------------------------------------------- segmentation


def test_regions_are_nested():
    for seed in range(1, 11):
        _, truth = problems.nested_regions(seed)
        assert set(np.unique(truth)) == {0, 1, 2, 3}
        for axis in (0, 1):
            assert np.abs(np.diff(truth, axis=axis)).max() == 1  # neighbours differ by one level: no three ever meet


def test_segmentation_energy_by_hand():
    rng = np.random.default_rng(0)
    image = rng.normal(size=(4, 5)) + 1.5
    model = problems.segment_image(image, [0.0, 1.0, 2.5, 3.0], smoothness=0.3, junction=10.0)
    levels = np.array([0.0, 1.0, 2.5, 3.0])
    for _ in range(50):
        x = rng.integers(0, 4, size=(4, 5))
        expected = np.abs(image - levels[x]).sum()
        expected += 0.3 * sum((np.diff(x, axis=axis) != 0).sum() for axis in (0, 1))
        expected += 10.0 * sum(len(np.unique(x[r : r + 2, c : c + 2])) > 2 for r in range(3) for c in range(4))
        assert model.energy(x) == pytest.approx(expected, rel=1e-12)


def test_segmentation_seeds_differ_and_repeat():
    one, again, two = (problems.segmentation(seed) for seed in (1, 1, 2))
    assert np.array_equal(one.unaries, again.unaries) and not np.array_equal(one.unaries, two.unaries)
    assert (one.num_variables, one.max_labels, one.max_order) == (1024, 4, 4)
    assert one.num_factors == 2 * 32 * 31 + 31 * 31
    truth = problems.nested_regions(1)[1]
    assert one.energy(truth) == pytest.approx(591.8004669976382, rel=1e-12)  # a checksum of the generator


# ---------------------------------------------------------------------- second-order stereo


def slanted_pair(height=24, width=40, slope=0.1, start=2.0):
    """A textured plane d = start + slope * x: rows of the right image sampled so that left(x) = right(x - d)."""
    rng = np.random.default_rng(0)
    texture = np.repeat(rng.random((height, 4 * width)), 1, axis=0)
    x = np.arange(width)
    rows = np.arange(height)[:, None]

    def sample(position):
        base = np.floor(position).astype(int)
        part = position - base
        return (1 - part) * texture[rows, base] + part * texture[rows, base + 1]

    position = x + 20.0  # of the texture under left pixel x; right pixel x - d(x) sees the same
    right_x = (np.arange(width) + start) / (1 - slope)  # left coordinate of right pixel
    left = sample(np.broadcast_to(position, (height, width)))
    right = sample(np.broadcast_to(right_x + 20.0, (height, width)))
    return left, right, np.broadcast_to(start + slope * x, (height, width))


def test_second_order_energy_by_hand():
    rng = np.random.default_rng(1)
    left, right = rng.integers(0, 256, size=(2, 4, 5, 3), dtype=np.uint8)
    values = rng.random((4, 5, 3)) * 3
    model, kept = problems.second_order_stereo(
        left, right, values, cap=1.5, scale=60.0, tau=0.8, smooth=0.5, edge=0.2, colour_edge=80
    )
    assert kept is values or np.array_equal(kept, values)
    x = rng.integers(0, 3, size=(4, 5))
    d = problems.proposal_disparity(x, values)
    expected = 0.0
    for r, c in np.ndindex(4, 5):
        assert d[r, c] == values[r, c, x[r, c]]
        place = c - d[r, c]
        if place < 0:
            expected += 1.5
            continue
        base = int(np.floor(place))
        part = place - base
        after = right[r, min(base + 1, 4)]
        expected += min(np.abs(left[r, c] - ((1 - part) * right[r, base] + part * after)).mean() / 60.0, 1.5)
    pixels = left.astype(float)
    for (r, c), (dr, dc) in itertools.product(np.ndindex(4, 5), [(0, 1), (1, 0)]):
        if r + 2 * dr > 3 or c + 2 * dc > 4:
            continue
        p, q, s = (r, c), (r + dr, c + dc), (r + 2 * dr, c + 2 * dc)
        step = max(np.abs(pixels[p] - pixels[q]).mean(), np.abs(pixels[q] - pixels[s]).mean())
        expected += (0.2 if step > 80 else 0.5) * min(abs(d[p] - 2 * d[q] + d[s]), 0.8)
    assert model.energy(x) == pytest.approx(expected, rel=1e-12)


def test_proposals_find_a_slanted_plane():
    pytest.importorskip("skimage", reason="proposals need scikit-image")
    left, right, truth = slanted_pair()
    model, values = problems.second_order_stereo(left, right, 4, max_disparity=10)
    assert values.shape == (24, 40, 4) and model.max_labels == 4 and model.max_order == 3
    visible = np.arange(40) >= 8
    error = np.abs(values - truth[:, :, None]).min(axis=2)[:, visible]
    assert np.median(error) < 0.25 and (error < 0.5).mean() > 0.9
    again = problems.second_order_stereo(left, right, 4, max_disparity=10)[1]
    assert np.array_equal(values, again)


def test_plane_fit_ignores_outliers():
    from tightmap.problems.second_order import fit_plane

    rng = np.random.default_rng(2)
    points = rng.random((60, 2)) * 20
    disparity = 0.2 * points[:, 0] - 0.1 * points[:, 1] + 5
    disparity[:20] += 6 + rng.random(20) * 5
    plane = fit_plane(points, disparity, np.random.default_rng(0))
    assert np.allclose(plane, [0.2, -0.1, 5])
    assert fit_plane(points[:2], disparity[:2], rng) is None
    level = fit_plane(np.zeros((5, 2)), np.full(5, 3.0), rng)  # one place: no slope can be seen
    assert np.allclose(level @ [0, 0, 1], 3.0)


def test_second_order_refuses():
    image = np.zeros((4, 5), dtype=np.uint8)
    with pytest.raises(tm.ModelError, match="different shapes"):
        problems.second_order_stereo(image, image[:, :3])
    with pytest.raises(tm.ModelError, match="proposals"):
        problems.second_order_stereo(image, image, np.zeros((4, 4, 2)))
