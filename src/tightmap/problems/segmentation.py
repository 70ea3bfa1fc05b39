"""Segmentation into nested regions, with a term of order four (after the inclusion models of the OpenGM benchmark).

A noisy picture of regions that lie in one another like the skins of an onion is segmented into grey levels.  The prior
is a Potts term on the four-neighbour grid and, on every 2 x 2 block, a generalised Potts term: it is free where at most
two labels meet and costs ``junction`` (1000) where three or four do.  Nested regions have no such points, but noise and
weak boundaries invite them, and a method that sees only pairs of pixels cannot tell.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tightmap.errors import ModelError
from tightmap.graph.graph import FloatArray, IntArray
from tightmap.model.model import Model


def nested_regions(seed: int, size: int = 32, labels: int = 4, noise: float = 0.6) -> tuple[FloatArray, IntArray]:
    """A noisy picture with grey levels 0 .. labels-1, and the true labels, both (size, size).

    Region l+1 lies inside region l: ellipses with wobbling outlines that shrink towards a common, random middle.
    """
    rng = np.random.default_rng(seed)
    y, x = (np.mgrid[:size, :size] + 0.5) / size - 0.5
    truth = np.zeros((size, size), dtype=np.int64)
    middle = rng.uniform(-0.06, 0.06, size=2)
    angle = np.arctan2(y - middle[0], x - middle[1])
    distance = np.hypot(y - middle[0], x - middle[1])
    waves = sum(rng.uniform(0.02, 0.05) * np.cos(k * angle + rng.uniform(0, 2 * np.pi)) for k in (2, 3, 5))
    for level in range(1, labels):
        radius = 0.42 * (labels - level) / (labels - 1)
        truth[distance < radius * (1 + 1.5 * waves)] = level
    return truth + noise * rng.normal(size=truth.shape), truth


def pattern_costs(most: int, cost: float) -> FloatArray:
    """Costs of the 15 patterns of equal labels on four positions, in the order of ``tightmap.factors.pattern``.

    A pattern is free when at most ``most`` different labels take part, else it costs ``cost``.
    """
    values = []

    def grow(string: tuple[int, ...]) -> None:
        if len(string) == 4:
            values.append(cost if max(string) + 1 > most else 0.0)
            return
        for group in range(max(string) + 2):
            grow((*string, group))

    grow((0,))
    return np.array(values)


def segment_image(
    image: npt.ArrayLike, levels: npt.ArrayLike, smoothness: float = 0.5, junction: float = 1000.0
) -> Model:
    """Segment a grey image: label l costs |pixel - levels[l]|, and the prior is the one described above.

    Parameters
    ----------
    image : (H, W) numbers.
    levels : (S,) the grey level that each label stands for.
    smoothness : weight of the Potts term on the four-neighbour grid.
    junction : cost of a 2 x 2 block in which three or four labels meet; 0 leaves the blocks out.
    """
    pixels, centres = np.asarray(image, dtype=np.float64), np.asarray(levels, dtype=np.float64)
    if pixels.ndim != 2 or centres.ndim != 1 or not len(centres):
        raise ModelError(f"segment_image: expected (H, W) pixels and (S,) levels, got {pixels.shape}, {centres.shape}")
    height, width = pixels.shape
    model = Model.grid(height, width, len(centres))
    model.add_unaries(np.abs(pixels.ravel()[:, None] - centres))
    model.add_potts(model.edges(), smoothness)
    if junction:
        index = np.arange(pixels.size).reshape(pixels.shape)
        blocks = np.stack([index[:-1, :-1], index[:-1, 1:], index[1:, :-1], index[1:, 1:]], axis=-1).reshape(-1, 4)
        model.add_label_patterns(blocks, pattern_costs(2, float(junction)))
    return model


def segmentation(
    seed: int = 0,
    size: int = 32,
    labels: int = 4,
    noise: float = 0.6,
    smoothness: float = 0.5,
    junction: float = 1000.0,
) -> Model:
    """The segmentation model of ``nested_regions(seed, size, labels, noise)``; the benchmark takes seeds 1 to 10."""
    image, _ = nested_regions(seed, size, labels, noise)
    return segment_image(image, np.arange(labels), smoothness, junction)
