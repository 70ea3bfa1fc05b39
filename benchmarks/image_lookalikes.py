"""Models made at random in the likeness of the public collections of image models, beside those of lookalikes.py.

    colours 4, 8          which of several colours a pixel has: Potts on 4 or 8 neighbours, weights by contrast on 8
    objects               the same with 4 to 8 classes, blurred data terms and a weight of its own for every pair
    brain                 tissues of voxels: Potts on 6 neighbours in space, five labels
    grey values           denoising and filling of holes with 256 labels, truncated squares of differences
    scene                 superpixels with 8 classes: an irregular graph, tables that favour what is seen side by side
    layouts 3, 7          superpixels with 3 or 7 orientations, pairs and triples of neighbours
    tree field            binary pixels, tables chosen by a tree from what is seen, with pixels far and near
    superpixels           a picture cut into segments: as many labels as superpixels, Potts weights of both signs
    superpixel triples    the same with label patterns of three superpixels that meet
    neurons               the same in space, three times as many neighbours
    dense communities     a clustering by modularity: all pairs, weights of both signs
    filling by P^n        two to four labels, squares of 3 x 3 pixels that should agree, truncated
    large proteins        rotamers, few residues with very many of them each
    tracking              longer than lookalikes.cell_tracking: thousands of detections

Every function takes a seed and gives the same model for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.spatial import Delaunay

import tightmap as tm
from lookalikes import _scene, cell_tracking, characters, communities, proteins


def _neighbours(h: int, w: int, diagonal: bool) -> np.ndarray:
    index = np.arange(h * w).reshape(h, w)
    pairs = [(index[:, :-1], index[:, 1:]), (index[:-1], index[1:])]
    if diagonal:
        pairs += [(index[:-1, :-1], index[1:, 1:]), (index[:-1, 1:], index[1:, :-1])]
    return np.concatenate([np.column_stack((a.reshape(-1), b.reshape(-1))) for a, b in pairs])


def _picture(rng: np.random.Generator, h: int, w: int) -> np.ndarray:
    """Three channels that have edges in common."""
    base = np.stack([_scene(rng, h, w) for _ in range(3)], -1)
    step = (_scene(rng, h, w)[..., None] > np.array([-0.8, 0.0, 0.9])).sum(-1)
    return np.rint(np.clip(110 + 25 * base + 35 * (step[..., None] - 1) + rng.normal(0, 9, (h, w, 3)), 0, 255))


def colours(seed: int, shape: tuple[int, int] = (240, 320), labels: int = 8, diagonal: bool = False) -> tm.Model:
    rng = np.random.default_rng([seed, 31, labels, diagonal])
    h, w = shape
    picture = _picture(rng, h, w).reshape(-1, 3)
    centres = picture[rng.choice(h * w, labels, replace=False)]
    unary = np.linalg.norm(picture[:, None] - centres[None], axis=2) ** 2 / 200.0
    edges = _neighbours(h, w, diagonal)
    weight = np.full(len(edges), 15.0)
    if diagonal:
        far = np.abs(edges[:, 1] - edges[:, 0])
        contrast = ((picture[edges[:, 0]] - picture[edges[:, 1]]) ** 2).sum(1)
        weight = 15.0 * np.exp(-contrast / 2000.0) * np.where((far == 1) | (far == w), 1.0, math.sqrt(0.5))
    model = tm.Model.grid(h, w, labels)
    model.add_unaries(unary)
    model.add_potts(edges, weight)
    return model


def objects(seed: int, shape: tuple[int, int] = (213, 320)) -> tm.Model:
    rng = np.random.default_rng([seed, 32])
    labels = int(rng.integers(4, 9))
    h, w = shape
    picture = _picture(rng, h, w).reshape(-1, 3)
    score = np.stack([_scene(rng, h, w) for _ in range(labels)], -1).reshape(-1, labels)
    score = 2.0 * score + rng.normal(0, 1.5, score.shape)
    unary = np.log(np.exp(score).sum(1, keepdims=True)) - score
    edges = _neighbours(h, w, False)
    contrast = ((picture[edges[:, 0]] - picture[edges[:, 1]]) ** 2).sum(1)
    model = tm.Model.grid(h, w, labels)
    model.add_unaries(unary)
    model.add_potts(edges, 0.3 + 4.0 * np.exp(-contrast / 500.0))
    return model


def brain(seed: int, shape: tuple[int, int, int] = (40, 48, 40), labels: int = 5) -> tm.Model:
    rng = np.random.default_rng([seed, 33])
    d, h, w = shape
    layers = np.stack([_scene(rng, h, w) for _ in range(4)])
    t = np.linspace(0, 3, d)
    k = np.minimum(t.astype(int), 2)
    volume = layers[k] * (1 - (t - k))[:, None, None] + layers[k + 1] * (t - k)[:, None, None]
    truth = np.digitize(volume, [-1.0, -0.3, 0.3, 1.0])
    centres = np.array([20.0, 70.0, 110.0, 150.0, 200.0])[:labels]
    seen = np.clip(centres[truth] + rng.normal(0, 25, shape), 0, 255)
    unary = (seen[..., None] - centres) ** 2 / (2 * 25.0**2)
    index = np.arange(seen.size).reshape(shape)
    pairs = [(index[:-1], index[1:]), (index[:, :-1], index[:, 1:]), (index[:, :, :-1], index[:, :, 1:])]
    edges = np.concatenate([np.column_stack((a.reshape(-1), b.reshape(-1))) for a, b in pairs])
    model = tm.Model([labels] * seen.size)
    model.add_unaries(unary.reshape(-1, labels))
    model.add_potts(edges, np.full(len(edges), 0.7))
    return model


def grey_values(seed: int, shape: tuple[int, int] = (120, 140), hole: bool = True) -> tm.Model:
    rng = np.random.default_rng([seed, 34])
    h, w = shape
    picture = _picture(rng, h, w)[..., 0]
    seen = np.rint(np.clip(picture + rng.normal(0, 15, shape), 0, 255))
    unary = (seen[..., None] - np.arange(256.0)) ** 2
    if hole:
        unary[h // 3 : h // 2, w // 4 : w // 2] = 0.0
        unary[rng.random(shape) < 0.1] = 0.0
    model = tm.Model.grid(h, w, 256)
    model.add_unaries(unary.reshape(-1, 256))
    edges = _neighbours(h, w, False)
    weight, limit = (25.0, 200.0) if seed % 2 else (5.0, 2000.0)
    model.add_truncated_quadratic(edges, np.full(len(edges), weight), limit)
    return model


def _superpixels(rng: np.random.Generator, n: int, space: int = 2) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places, the pairs of neighbours and the simplices of a Delaunay triangulation without its longest edges."""
    place = rng.random((n, space))
    simplices = Delaunay(place).simplices
    pairs = np.concatenate([simplices[:, [a, b]] for a in range(space + 1) for b in range(a)])
    pairs = np.unique(np.sort(pairs, axis=1), axis=0)
    length = np.linalg.norm(place[pairs[:, 0]] - place[pairs[:, 1]], axis=1)
    pairs = pairs[length < 3.0 * n ** (-1 / space)]
    return place, pairs, np.sort(simplices, axis=1)


def scene(seed: int, n: int = 180, labels: int = 8) -> tm.Model:
    rng = np.random.default_rng([seed, 35])
    place, pairs, _ = _superpixels(rng, n)
    owner = np.argmin(np.linalg.norm(place[:, None] - rng.random((1, 10, 2)), axis=2), axis=1)
    truth = rng.integers(0, labels, 10)[owner]
    score = rng.normal(0, 1.0, (n, labels))
    score[np.arange(n), truth] += 1.2
    model = tm.Model([labels] * n)
    model.add_unaries(-score * rng.gamma(2.0, 1.0, (n, 1)))
    together = rng.normal(0, 0.4, (labels, labels)) + 0.8 * np.eye(labels)
    strength = rng.gamma(1.0, 1.0, (len(pairs), 1, 1))
    own = rng.normal(0, 0.3, (len(pairs), labels, labels))
    model.add_factors(pairs, -strength * (together + own))
    return model


def layouts(seed: int, n: int = 600, labels: int = 7) -> tm.Model:
    rng = np.random.default_rng([seed, 36, labels])
    place, pairs, triples = _superpixels(rng, n)
    owner = np.argmin(np.linalg.norm(place[:, None] - rng.random((1, 12, 2)), axis=2), axis=1)
    truth = rng.integers(0, labels, 12)[owner]
    p = rng.dirichlet(np.full(labels, 0.6), n)
    p[np.arange(n), truth] += rng.random(n)
    model = tm.Model([labels] * n)
    model.add_unaries(-np.log(p / p.sum(1, keepdims=True) + 1e-4))
    q = rng.beta(4, 2, (len(pairs), 1, 1))
    model.add_factors(pairs, -np.where(np.eye(labels) > 0, np.log(q), np.log(1 - q)))
    grid = np.indices((labels,) * 3)
    same = (grid[0] == grid[1]).astype(int) + (grid[1] == grid[2]) + (grid[0] == grid[2])
    cost = rng.gamma(0.5, 1.0, (len(triples), 3))
    levels = np.stack((cost.sum(1), cost[:, 0], np.zeros(len(triples))), 1)[:, [0, 1, 1, 2]]
    model.add_factors(triples, levels[:, same] + rng.gamma(0.2, 0.3, (len(triples), labels, labels, labels)))
    return model


def tree_field(seed: int, shape: tuple[int, int] = (60, 80), around: int = 24, leaves: int = 6) -> tm.Model:
    """Tables are shared by all pairs of one offset whose surroundings end in the same leaf."""
    rng = np.random.default_rng([seed, 37])
    h, w = shape
    seen = _scene(rng, h, w)
    model = tm.Model([2] * (h * w))
    data = np.where(rng.random(shape) < 0.4, 1.5 * np.sign(seen), 0.0) + rng.normal(0, 0.5, shape)
    model.add_unaries(np.stack((np.zeros(shape), data), -1).reshape(-1, 2))
    index = np.arange(h * w).reshape(shape)
    steps = [(dr, dc) for dr in range(-9, 10) for dc in range(10) if (dc, dr) > (0, 0)]
    for k in rng.choice(len(steps), around, replace=False):
        dr, dc = steps[k]
        a = index[max(0, -dr) : h - max(0, dr), : w - dc].reshape(-1)
        b = index[max(0, dr) : h + min(0, dr), dc:].reshape(-1)
        leaf = np.digitize(seen.reshape(-1)[a] - seen.reshape(-1)[b], np.sort(rng.normal(0, 1, leaves - 1)))
        tables = rng.normal(0, 0.5, (leaves, 2, 2))
        model.add_factors(np.column_stack((a, b)), tables[leaf])
    return model


def _boundaries(rng: np.random.Generator, place: np.ndarray, pairs: np.ndarray, things: int) -> np.ndarray:
    """Costs of a boundary between neighbours: negative where there seems to be one."""
    space = place.shape[1]
    owner = np.argmin(np.linalg.norm(place[:, None] - rng.random((1, things, space)), axis=2), axis=1)
    apart = owner[pairs[:, 0]] != owner[pairs[:, 1]]
    p = np.clip(np.where(apart, rng.beta(3.0, 1.7, len(pairs)), rng.beta(1.3, 4.5, len(pairs))), 0.001, 0.999)
    return np.log((1 - p) / p) * rng.gamma(2.0, 0.5, len(pairs))


def superpixels(seed: int, n: int = 500) -> tm.Model:
    rng = np.random.default_rng([seed, 38])
    place, pairs, _ = _superpixels(rng, n)
    model = tm.Model([n] * n)
    model.add_potts(pairs, _boundaries(rng, place, pairs, max(6, n // 25)))
    return model


def superpixel_triples(seed: int, n: int = 300) -> tm.Model:
    """Where three superpixels meet, a boundary that ends there and one that forks cost something of their own."""
    rng = np.random.default_rng([seed, 39])
    place, pairs, triples = _superpixels(rng, n)
    model = tm.Model([n] * n)
    model.add_potts(pairs, _boundaries(rng, place, pairs, max(6, n // 25)))
    chosen = triples[rng.random(len(triples)) < 0.6]
    for scope in chosen:
        value = np.zeros(5)  # all the same, three ways to set one apart, all different
        value[1:4] = rng.normal(0.0, 0.6, 3)
        value[4] = rng.gamma(1.0, 0.8)
        model.add_label_patterns([scope], value)
    return model


def neurons(seed: int, n: int = 800) -> tm.Model:
    rng = np.random.default_rng([seed, 40])
    place, pairs, _ = _superpixels(rng, n, 3)
    model = tm.Model([n] * n)
    model.add_potts(pairs, _boundaries(rng, place, pairs, max(6, n // 40)) + 0.3)
    return model


def agreeing_squares(seed: int, shape: tuple[int, int] = (60, 80), labels: int = 4) -> tm.Model:
    rng = np.random.default_rng([seed, 41])
    h, w = shape
    truth = np.digitize(_scene(rng, h, w), np.linspace(-1, 1, labels - 1))
    score = rng.normal(0, 1.0, (h * w, labels))
    score[np.arange(h * w), truth.reshape(-1)] -= 1.0
    index = np.arange(h * w).reshape(shape)
    squares = np.stack([index[r : h - 2 + r, c : w - 2 + c].reshape(-1) for r in range(3) for c in range(3)], -1)
    model = tm.Model.grid(h, w, labels)
    model.add_unaries(score)
    edges = _neighbours(h, w, False)
    model.add_potts(edges, np.full(len(edges), 0.3))
    for square in squares[::2]:
        model.add_pn_potts([square], [float(rng.gamma(2.0, 1.0))])
    return model


IMAGES: dict[str, Callable[[int], tm.Model]] = {
    "colours 4": lambda seed: colours(seed, labels=(3, 8, 12)[seed % 3]),
    "colours 8": lambda seed: colours(seed, labels=(3, 8, 12)[seed % 3], diagonal=True),
    "objects": objects,
    "brain": brain,
    "grey values": grey_values,
    "scene": scene,
    "layouts 3": lambda seed: layouts(seed, 800, 3),
    "layouts 7": layouts,
    "tree field": tree_field,
    "large characters": lambda seed: characters(seed, (70, 80)),
    "superpixels": superpixels,
    "superpixel triples": superpixel_triples,
    "neurons": neurons,
    "communities 34": lambda seed: communities(seed, 34),
    "communities 62": lambda seed: communities(seed, 62),
    "communities 105": lambda seed: communities(seed, 105),
    "filling by P^n": agreeing_squares,
    "large proteins": lambda seed: proteins(seed, 60),
    "tracking": lambda seed: cell_tracking(seed, 90, 40),
}
