"""Builders of problems: equal to the published files table for table, and right without them too."""

from __future__ import annotations

import numpy as np
import pytest

import tightmap as tm
from conftest import data_file
from tightmap import problems


def edge_tables(model: tm.Model) -> dict[tuple[int, int], np.ndarray]:
    """Every pairwise factor as a dense table, by sorted scope; factors on the same scope add up."""
    tables: dict[tuple[int, int], np.ndarray] = {}
    for block in model.blocks:
        shape = tuple(model.cardinalities[block.scopes[0]])
        dense = block.dense(np.arange(len(block)), shape)
        for (a, b), table in zip(block.scopes.tolist(), dense, strict=True):
            key, value = ((a, b), table) if a < b else ((b, a), table.T)
            tables[key] = tables[key] + value if key in tables else value
    return tables


def assert_same_tables(built: tm.Model, read: tm.Model) -> None:
    assert np.array_equal(built.cardinalities, read.cardinalities)
    assert built.constant == read.constant
    assert np.array_equal(built.unaries, read.unaries)
    ours, theirs = edge_tables(built), edge_tables(read)
    assert ours.keys() == theirs.keys()
    keys = sorted(ours)
    assert np.array_equal(np.stack([ours[k] for k in keys]), np.stack([theirs[k] for k in keys]))


@pytest.mark.data
@pytest.mark.parametrize("neighbours", [4, 8])
@pytest.mark.parametrize("inverse", [False, True])
def test_inpainting_equals_the_files(neighbours, inverse):
    path = data_file(f"inpainting/n{neighbours}-triplepoint4-plain-ring{'-inverse' if inverse else ''}.h5")
    assert_same_tables(problems.inpainting(neighbours=neighbours, inverse=inverse), tm.read(path))


def test_inpainting_regions_without_the_files():
    regions = problems.inpainting_regions()
    assert np.bincount(regions.ravel()).tolist() == [2075, 2078, 2075, 2788, 5384]
    # mirror image: left and right sectors swap, the rest stays
    assert np.array_equal(np.array([2, 1, 0, 3, 4])[regions[:, ::-1]], regions)


@pytest.mark.parametrize("size", [4, 7, 20, 60])
def test_inpainting_scales(size):
    """Shares of the regions stay as the size changes, up to pixels on the boundaries (their number grows with size)."""
    counts = np.bincount(problems.inpainting_regions(size).ravel(), minlength=5)
    share = np.array([2075, 2078, 2075, 2788, 5384]) / 14400
    assert np.abs(counts - share * size**2).max() <= 3 * size
    assert problems.inpainting(size, neighbours=8, inverse=True).num_variables == size * size


def test_inpainting_refuses():
    with pytest.raises(tm.ModelError, match="at least 4"):
        problems.inpainting(3)
    with pytest.raises(tm.ModelError, match="4 or 8"):
        problems.inpainting(neighbours=6)


def stereo_pair(name):
    return [problems.read_image(data_file(f"stereo/{name}-im{side}.png")) for side in "LR"]


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "sums"),
    [
        ("tsukuba", (78196440, 195721, 196849)),
        ("venus", (322468866, 165839, 165788)),
        ("teddy", (300656498, 430705, 423398)),
    ],
)
def test_stereo_equals_the_files(name, sums):
    model = problems.stereo(*stereo_pair(name), **problems.STEREO_PRESETS[name])
    height, width = model.grid_shape
    weights = model.blocks[0].weights / problems.STEREO_PRESETS[name]["weight"]
    across = height * (width - 1)
    assert (model.unaries.sum(), weights[:across].sum(), weights[across:].sum()) == sums
    other = tm.read(data_file(f"stereo/{name}-gm.npz"))
    assert np.array_equal(model.unaries, other.unaries)
    (ours,), (theirs,) = model.blocks, other.blocks
    assert type(ours) is type(theirs)
    assert np.array_equal(ours.scopes, theirs.scopes) and np.array_equal(ours.weights, theirs.weights)
    assert all(np.array_equal(v, theirs.parameters[k]) for k, v in ours.parameters.items())


def slow_difference(left, right, y, x, d, squared):
    """Birchfield and Tomasi's difference of one pixel, written out from its definition."""
    if x - d < 0:
        return left.shape[2] * 255 ** (2 if squared else 1)
    total = 0
    for band in range(left.shape[2]):
        values = []
        for image, column in ((left, x), (right, x - d)):
            row = [int(v) for v in image[y, :, band]]
            around = [row[column]]
            around.append((row[column] + row[column - 1]) // 2 if column > 0 else row[column])
            around.append((row[column] + row[column + 1]) // 2 if column + 1 < len(row) else row[column])
            values.append((row[column], min(around), max(around)))
        (a, low_a, high_a), (b, low_b, high_b) = values
        difference = min(max(0, a - high_b, low_b - a), max(0, b - high_a, low_a - b))
        total += difference**2 if squared else difference
    return total


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("bands", [1, 3])
def test_stereo_data_term_by_hand(squared, bands):
    rng = np.random.default_rng(bands)
    left, right = rng.integers(0, 256, size=(2, 3, 7, bands), dtype=np.uint8)
    model = problems.stereo(left, right, 9, squared=squared)  # more labels than columns
    costs = model.unaries.reshape(3, 7, 9)
    for y, x, d in np.ndindex(3, 7, 9):
        assert costs[y, x, d] == slow_difference(left, right, y, x, d, squared)


def test_stereo_smoothness_by_hand():
    left = np.array([[10, 12, 30], [10, 11, 31]], dtype=np.uint8)
    model = problems.stereo(left, left, 4, power=2, limit=5, weight=3, gradient_threshold=3, gradient_penalty=2, cap=7)
    labels = np.array([[0, 1, 3], [2, 2, 0]])
    # smooth edges (difference below 3) weigh 2: all but the two between columns 1 and 2
    pairs = [(0, 1, 2), (1, 3, 1), (2, 2, 2), (2, 0, 1), (0, 2, 2), (1, 2, 2), (3, 0, 2)]
    data = model.unaries.reshape(2, 3, 4)
    expected = sum(data[y, x, labels[y, x]] for y, x in np.ndindex(2, 3))
    expected += sum(3 * w * min((a - b) ** 2, 5) for a, b, w in pairs)
    assert model.energy(labels) == expected
    assert data.max() == 7


def test_float_images_and_refusals():
    image = np.linspace(0, 1, 20).reshape(4, 5)
    same = problems.stereo(np.rint(image * 255).astype(np.uint8), np.rint(image * 255).astype(np.uint8), 3)
    assert np.array_equal(problems.stereo(image, image, 3).unaries, same.unaries)
    for left, right, message in [
        (image, image[:2], "different shapes"),
        (image * 300, image, "0..1"),
        (np.zeros((3, 3, 2), dtype=np.uint8), image, r"\(H, W, 3\)"),
    ]:
        with pytest.raises(tm.ModelError, match=message):
            problems.stereo(left, right, 3)
    with pytest.raises(tm.ModelError, match="whole number"):
        problems.stereo(image, image, 2.5)


def test_pictures_and_errors_of_disparities():
    truth = np.array([[0.0, 1.0, 4.0], [np.inf, 2.0, 2.0]])
    assert problems.bad_pixels([[3, 1, 2], [3, 3, 2]], truth) == 0.25
    picture = problems.disparity_picture(truth)
    assert picture.shape == (2, 3, 3) and (picture[[0, 1], [0, 0]] == 0).all() and picture[0, 1].any()
    assert np.array_equal(problems.shrink(np.array([[1, 2, 9], [3, 4, 9]], dtype=np.uint8), 2), [[2]])
    assert problems.shrink(truth, 2)[0, 0] == 1.0  # (0 + 1 + 2) / 3: the infinite pixel does not count


@pytest.mark.parametrize(
    ("neighbours", "inverse", "energy"),
    [
        (4, False, 532.49995478347),
        (4, True, 6760.49995478347),
        (8, False, 532.822953681237),
        (8, True, 6760.822953681237),
    ],
)
def test_inpainting_checksums(neighbours, inverse, energy):
    """The four models are the published ones also where the files are not there: energies taken from those files."""
    regions = problems.inpainting_regions()
    labels = np.where(regions == 4, 3, np.where(regions == 3, 1, regions))
    assert problems.inpainting(neighbours=neighbours, inverse=inverse).energy(labels) == pytest.approx(
        energy, rel=1e-12
    )
