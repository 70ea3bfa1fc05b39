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
