"""The collection of real models: every file is read, and what is known about it holds."""

from __future__ import annotations

import numpy as np
import pytest

import tightmap as tm
from conftest import data_file
from tightmap import io as tio

pytestmark = pytest.mark.data

UAI = [
    "Grids_18",
    "ObjectDetection_11",
    "Promedas_11",
    "Promedas_24",
    "ProteinFolding_11",
    "Segmentation_11",
    "Segmentation_12",
    "wcsp_11",
]

# file -> variables, most labels, factors, order
SHAPES = {
    "wcsp/celar6sub0.wcsp": (32, 44, 223, 2),
    "wcsp/zebra.wcsp": (25, 5, 17, 5),
    "wcsp/example.wcsp": (25, 5, 63, 2),
    "wcsp/404.wcsp.xz": (100, 4, 610, 3),
    "wcsp/1aho.cfn.gz": (64, 55, 544, 2),
    "wcsp/CELAR6SUB1.cfn.gz": (28, 44, 314, 2),
    "wcsp/bqp100-1.qpbo": (100, 2, 464, 2),
    "matching/matching0.dd": (19, 20, 171, 2),
    "maxcut/G1.txt": (800, 2, 19176, 2),
    "maxcut/G11.txt": (800, 2, 1600, 2),
}


@pytest.mark.parametrize("name", UAI)
def test_reference_solutions(name):
    """Finite, and the evidence is respected (it would be +inf otherwise)."""
    path = data_file(f"uai/{name}.uai")
    model = tm.read(path, evidence=data_file(f"uai/{name}.uai.evid"))
    labels = tm.read_labels(data_file(f"uai/{name}.uai.MAP"))
    assert np.isfinite(model.energy(labels))
    assert (model.clamped >= 0).sum() == len(tio.read_evidence(f"{path}.evid"))


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name):
    model = tm.read(data_file(name))
    assert (model.num_variables, model.max_labels, model.num_factors, model.max_order) == SHAPES[name]


@pytest.mark.parametrize("name", ["n4-triplepoint4-plain-ring", "n8-triplepoint4-plain-ring-inverse"])
def test_inpainting(name):
    model = tm.read(data_file(f"inpainting/{name}.h5"))
    inverse, eight = name.endswith("inverse"), name.startswith("n8")
    assert model.num_variables == 14400 and model.max_labels == 4
    assert model.num_factors == (56882 if eight else 28560)
    ring = 2075 + 2078 + 2075
    assert model.unaries.sum() == 5384 * 300 + ring * ((1 if inverse else 2) + 100)
    alternating = np.indices((120, 120)).sum(axis=0).ravel() % 2  # every axis edge is cut, no diagonal one
    smooth = model.energy(alternating) - model.unaries[model.offset[:-1] + alternating].sum()
    assert smooth == pytest.approx(28560 * np.pi / (8 if eight else 4))


@pytest.mark.parametrize(
    ("name", "kind", "factor", "data", "weights"),
    [
        ("tsukuba", "LINEAR", 20, 78196440, 195721 + 196849),
        ("venus", "QUADRATIC", 50, 322468866, 165839 + 165788),
        ("teddy", "POTTS", 10, 300656498, 430705 + 423398),
    ],
)
def test_stereo(name, kind, factor, data, weights):
    model = tm.read(data_file(f"stereo/{name}-gm.npz"))
    assert model.grid_shape is not None and [b.kind.name for b in model.blocks] == [kind]
    assert model.unaries.sum() == data and model.blocks[0].weights.sum() == factor * weights


def test_matching_in_the_scale_of_the_literature():
    """The optimal complete matching is published as 19.3629 = energy + 190."""
    path = data_file("matching/matching0.dd")
    best = np.array([2, 13, 12, 16, 11, 7, 5, 1, 9, 6, 10, 3, 18, 4, 15, 14, 17, 0, 8])
    complete, free = tm.read(path, unmatched=False), tm.read(path)
    assert complete.energy(best) + 190 == pytest.approx(19.3629, abs=1e-4)
    assert free.energy(best) == complete.energy(best) and free.energy(np.full(19, 19)) == 0.0
    assert np.isinf(complete.energy(np.zeros(19, dtype=int)))
