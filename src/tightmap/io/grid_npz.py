"""Grids as four arrays in an .npz file, the usual dump of a stereo or denoising model.

    D  (H, W, K)    unary costs
    hw (H, W-1)     weights of the edges (r, c) - (r, c+1)
    vw (H-1, W)     weights of the edges (r, c) - (r+1, c)
    V  (K, K)       cost of two labels; an edge costs weight * V[a, b], a the label of its left or upper end

V is taken for lambda * min(|a-b|^e, limit), e = 1 or 2, when it is exactly that (Potts is e = 1, limit = 1), so that
the fast kernels are used; any other V is a dense table that all edges share.
"""

from __future__ import annotations

import numpy as np

from tightmap.errors import ModelError
from tightmap.graph.graph import FloatArray
from tightmap.io.npz import Archive
from tightmap.io.source import check_total
from tightmap.model.model import Model

KEYS = ("D", "hw", "vw", "V")


def is_grid(archive: Archive) -> bool:
    return all(k in archive for k in KEYS)


def recognise(table: FloatArray) -> tuple[str, float, float] | None:
    """(kind, lambda, limit) of a table lambda * min(|a-b|^e, limit): kind "potts", "linear", "quadratic", or None."""
    labels = len(table)
    if labels < 2 or not np.isfinite(table).all():
        return None
    row = table[0]
    gap = np.abs(np.arange(labels)[:, None] - np.arange(labels)[None, :])
    if row[0] != 0.0 or row[1] == 0.0 or (table != row[gap]).any():
        return None
    scale = float(row[1])
    with np.errstate(over="ignore"):  # an overflow equals nothing in the table
        steps = row / scale
        if (steps[1:] == 1.0).all():
            return "potts", scale, 1.0
        for kind, power in (("linear", 1), ("quadratic", 2)):
            limit = float(steps.max())
            if (scale * np.minimum(np.arange(labels, dtype=np.float64) ** power, limit) == row).all():
                return kind, scale, np.inf if limit == float(labels - 1) ** power else limit
    return None


def read_grid(archive: Archive) -> Model:
    """A model of D, hw, vw and V."""
    data = archive.get("D", "fiu", 3)
    height, width, labels = data.shape
    if min(data.shape) < 1:
        raise ModelError(f"array 'D': expected (H, W, K) with at least one of each, got {data.shape}")
    wanted = {"hw": (height, width - 1), "vw": (height - 1, width), "V": (labels, labels)}
    found = {name: archive.get(name, "fiu", 2).astype(np.float64) for name in wanted}
    for name, shape in wanted.items():
        if found[name].shape != shape:
            raise ModelError(f"array '{name}': expected shape {shape} for D of {data.shape}, got {found[name].shape}")
    check_total(height * width, float(data.size), "array 'D'", data.nbytes)
    model = Model.grid(height, width, labels)
    model.add_unaries(data.reshape(-1, labels))
    edges = model.edges()
    weights = np.concatenate([found["hw"].ravel(), found["vw"].ravel()])  # the order of Model.edges: right, then down
    form = recognise(found["V"])
    if form is not None:
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = form[1] * weights
        if not np.isfinite(scaled).all():
            form = None  # the table as it is: Model says what is wrong with the numbers
    if form is None:
        model.add_factors(edges, found["V"], weights)
    elif form[0] == "potts":
        model.add_potts(edges, scaled)
    elif form[0] == "linear":
        model.add_truncated_linear(edges, scaled, form[2])
    else:
        model.add_truncated_quadratic(edges, scaled, form[2])
    return model
