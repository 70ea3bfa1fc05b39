"""A certified lower bound of a grid, tile by tile: chains along rows, columns and diagonals, each minimised exactly.

Write the unary of every pixel as a sum of shares, one for each chain through it, u_p = sum_d l_pd.  Then

    min E >= sum over chains  min_x ( sum_p l_pd(x_p) + sum_pq w_pq V(|x_p - x_q|) )

for all shares, and the right side is a sum of exact dynamic programmes.  The ascent visits the chains of one direction
after another.  In a chain, m_p = min-marginals of p; the part gamma (m_p - min m_p) of them can be taken out of the
share of p without changing the minimum of the chain, pixel after pixel, and is given to the other chains of p, whose
minima can only rise.  Along rows the share is what the other directions leave, l_row = u - sum of the others.

Tiles.  A chain that leaves a tile downwards ends at the first row of the next tile (the seam), which begins a new chain
there.  Tiles of even number are done first, with nothing on their lower seam; then they hand over what their chains
say about both seams, and the odd ones start with it.  What is handed over is one number for both sides, so the sum over
all tiles is a bound of the whole model, whatever was handed over.

Rounding.  Bounds are evaluated once, at the end.  At every pixel of a chain at most D + 6 numbers are added, of total
size at most z, so the error is at most (D + 6) u z there, u = 2^-53 (2 u is taken); the sums over pixels are made by
rows and their error is (width + height) u times the sum of sizes.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tightmap.energy.certificate import UNIT
from tightmap.runtime.compiled import compiled, lean
from tightmap.solvers.admm.tiles.labelling import tile_of
from tightmap.solvers.admm.tiles.rows import GridRows

Seam = npt.NDArray[np.float64]  # (width, labels)
PART = 0.5  # gamma; larger parts converge to worse shares


@lean
def _message(h, w, profile, taps, out):
    """out(s) = min_t h(t) + w V(|s - t|), less its constant part: min h must be zero."""
    labels = len(h)
    if w == 0.0:
        for s in range(labels):
            out[s] = 0.0
    elif w > 0.0:
        top = w * profile[labels - 1]
        for s in range(labels):
            best = min(top, h[s])
            for k in range(1, taps):
                step = w * profile[k]
                if s >= k:
                    best = min(best, h[s - k] + step)
                if s + k < labels:
                    best = min(best, h[s + k] + step)
            out[s] = best
    else:
        for s in range(labels):
            best = h[s]
            for t in range(labels):
                best = min(best, h[t] + w * profile[abs(s - t)])
            out[s] = best


@lean
def _lower(h):
    """Subtract the minimum; returns it."""
    least = h[0]
    for s in range(1, len(h)):
        least = min(least, h[s])
    for s in range(len(h)):
        h[s] -= least
    return least


@compiled
def _along_rows(unary, share, weight, profile, taps, gamma, backwards):
    """Every row once: a pass that remembers the messages from one side, then one that takes out and gives away."""
    height, width, labels = unary.shape[0], unary.shape[1], unary.shape[2]
    count = len(share)
    ahead = np.zeros((width + 1, labels))
    own, h, message = np.zeros((width, labels)), np.zeros(labels), np.zeros(labels)
    for r in range(height):
        for c in range(width):
            for s in range(labels):
                value = unary[r, c, s]
                for d in range(count):
                    value -= share[d, r, c, s]
                own[c, s] = value
        ahead[width - 1 if not backwards else 0, :] = 0.0
        for i in range(width - 1):
            c = i + 1 if backwards else width - 2 - i
            before = c - 1 if backwards else c + 1
            for s in range(labels):
                h[s] = own[before, s] + ahead[before, s]
            _lower(h)
            _message(h, weight[0, r + 1, min(c, before)], profile, taps, ahead[c])
        message[:] = 0.0
        for i in range(width):
            c = width - 1 - i if backwards else i
            for s in range(labels):
                h[s] = own[c, s] + message[s] + ahead[c, s]
            _lower(h)
            for s in range(labels):
                for d in range(count):
                    share[d, r, c, s] += gamma * h[s] / count
                h[s] = own[c, s] - gamma * h[s] + message[s]
            _lower(h)
            if i + 1 < width:
                _message(h, weight[0, r + 1, min(c, c - 1 if backwards else c + 1)], profile, taps, message)


@compiled
def _upwards(share, weight, direction, right, profile, taps, ahead, backwards):
    """Messages of one direction from below (from above when backwards), to ``ahead``."""
    rows, width, labels = share.shape[0], share.shape[1], share.shape[2]
    h = np.zeros(labels)
    ahead[0 if backwards else rows - 1] = 0.0
    for i in range(rows - 1):
        r = i + 1 if backwards else rows - 2 - i
        before = r - 1 if backwards else r + 1
        for c in range(width):
            e = c - right if backwards else c + right
            if e < 0 or e >= width:
                ahead[r, c, :] = 0.0
                continue
            for s in range(labels):
                h[s] = share[before, e, s] + ahead[before, e, s]
            _lower(h)
            w = weight[direction, r, e] if backwards else weight[direction, r + 1, c]
            _message(h, w, profile, taps, ahead[r, c])


@compiled
def _downwards(share, weight, direction, right, profile, taps, ahead, gamma, first, last, given, backwards):
    """Every chain of one direction once, after ``_upwards``: take out the part gamma, or ``first`` and ``last`` of it
    in the first and last row, where what is taken is added to ``given``."""
    rows, width, labels = share.shape[0], share.shape[1], share.shape[2]
    message, next_ = np.zeros((width, labels)), np.zeros((width, labels))
    h = np.zeros(labels)
    for i in range(rows):
        r = rows - 1 - i if backwards else i
        part = first if r == 0 else (last if r == rows - 1 else gamma)
        next_[:] = 0.0
        for c in range(width):
            for s in range(labels):
                h[s] = share[r, c, s] + message[c, s] + ahead[r, c, s]
            _lower(h)
            for s in range(labels):
                taken = part * h[s]
                share[r, c, s] -= taken
                if r == 0:
                    given[0, c, s] += taken
                elif r == rows - 1:
                    given[1, c, s] += taken
                h[s] = share[r, c, s] + message[c, s]
            _lower(h)
            e = c - right if backwards else c + right
            if i + 1 < rows and 0 <= e < width:
                w = weight[direction, r, e] if backwards else weight[direction, r + 1, c]
                _message(h, w, profile, taps, next_[e])
        message, next_ = next_, message


@compiled
def _evaluate(unary, share, weight, rights, profile, taps):
    """Sum of the minima of all chains, and the sizes that its rounding error follows from.

    Returns (sum, sum of the sizes of the minima, sum over pixels of the sizes of what was added there).
    """
    height, width, labels = unary.shape[0], unary.shape[1], unary.shape[2]
    count, rows = share.shape[0], share.shape[1]
    h, message = np.zeros(labels), np.zeros((width + 1, labels))
    next_ = np.zeros((width + 1, labels))
    total, minima, sizes = 0.0, 0.0, 0.0
    for r in range(height):
        part = 0.0
        message[:] = 0.0
        for c in range(width):
            size = 0.0
            for s in range(labels):
                value, large = unary[r, c, s], abs(unary[r, c, s])
                for d in range(count):
                    value -= share[d, r, c, s]
                    large += abs(share[d, r, c, s])
                h[s] = value + message[c, s]
                size = max(size, large + abs(message[c, s]))
            least = _lower(h)
            part += least
            minima += abs(least)
            w = weight[0, r + 1, c]
            sizes += 2.0 * size + abs(w) * profile[labels - 1]
            _message(h, w, profile, taps, message[c + 1])
        total += part
    for d in range(count):
        right = rights[d]
        message[:] = 0.0
        for r in range(rows):
            part = 0.0
            next_[:] = 0.0
            for c in range(width):
                size = 0.0
                for s in range(labels):
                    h[s] = share[d, r, c, s] + message[c, s]
                    size = max(size, abs(share[d, r, c, s]) + abs(message[c, s]))
                least = _lower(h)
                part += least
                minima += abs(least)
                w = weight[d + 1, r + 1, c] if r + 1 < rows else 0.0
                sizes += 2.0 * size + abs(w) * profile[labels - 1]
                if r + 1 < rows and 0 <= c + right < width:
                    _message(h, w, profile, taps, next_[c + right])
            total += part
            message, next_ = next_, message
    return total, minima, sizes


def bound_tile(
    model: GridRows, tile: int, rounds: int, above: Seam | None, below: Seam | None
) -> tuple[float, float, Seam | None, Seam | None]:
    """(bound, its rounding error, what is handed to the tile above, and below) of one tile and the edges leaving it.

    ``above`` and ``below`` are what the neighbours handed over (odd tiles); even tiles hand over themselves.
    """
    costs = tile_of(model, tile)
    height, width, labels = costs.unary.shape
    seam = tile + 1 < model.tiles  # chains end one row below
    rights = np.array([0, 1, -1][: model.directions - 1], np.int64)
    count = len(rights)
    top = costs.profile.max()
    taps = int(np.argmax(costs.profile >= top))
    unary = costs.unary.astype(np.float64)  # a copy: it changes
    if above is not None:
        unary[0] += above
    share = np.zeros((count, height + seam, width, labels))
    share[:, :height] = unary / (count + 1)
    if seam and below is not None:
        share[:, height] = below / count
    ahead = np.zeros(share.shape[1:])
    given = np.zeros((2, width, labels))
    weight = costs.weight
    for turn in range(rounds):
        back = turn % 2 == 1
        _along_rows(unary, share, weight, costs.profile, taps, PART, back)
        for d in range(count):
            _upwards(share[d], weight, d + 1, rights[d], costs.profile, taps, ahead, back)
            last = 0.0 if seam else PART  # no row runs along the seam that could take it
            _downwards(share[d], weight, d + 1, rights[d], costs.profile, taps, ahead, PART, PART, last, given, back)
    up: Seam | None = None
    down: Seam | None = None
    if tile % 2 == 0 and model.tiles > 1:
        given[:] = 0.0
        _along_rows(unary, share, weight, costs.profile, taps, 1.0, False)  # all that rows know goes to the seams too
        for d in range(count):
            if seam:
                _upwards(share[d], weight, d + 1, rights[d], costs.profile, taps, ahead, False)
                _downwards(share[d], weight, d + 1, rights[d], costs.profile, taps, ahead, 0.0, 0.0, 1.0, given, False)
            if tile > 0:
                _upwards(share[d], weight, d + 1, rights[d], costs.profile, taps, ahead, True)
                _downwards(share[d], weight, d + 1, rights[d], costs.profile, taps, ahead, 0.0, 1.0, 0.0, given, True)
        if seam:
            down = given[1].copy()
        if tile > 0:
            up = given[0].copy()
            unary[0] -= up
    total, minima, sizes = _evaluate(unary, share, weight, rights, costs.profile, taps)
    handed = sum(float(np.abs(g).sum()) for g in (above, below, up, down) if g is not None)
    error = UNIT * (2.0 * (count + 8) * (sizes + handed) + (width + height + 4) * (count + 1) * minima)
    return total, error, up, down
