"""The layout of the grid engine of TRW-S: eight rows side by side, for four and for eight neighbours.

A sweep visits the pixels in raster order, and a pixel only waits for its earlier neighbours: the one to the left and,
in the row above, the one above or the three that touch it.  So a row can be visited while the one above is ahead of it
by ``lag`` columns, 1 with four neighbours and 2 with eight, and that gives exactly what the raster order gives.  The
image is cut into strips of eight rows, lane l of a SIMD register holds row l of the strip:

    pixel (8 p + l, c)   is lane l of strip p at step k = c + lag l,      0 <= k < steps = width + 7 lag.

Everything is stored in that order, [strip][step][...][lane], and streams through memory in a straight line.  Labels
are visited one after the other, so Potts, truncated linear and truncated quadratic messages need no shuffling of
lanes and no padding of labels, whatever their number.  Lanes outside the image, and pairs that are no edges of the
model, have weight zero, and the messages of those stay zero.

One message per edge (general.py), in whichever direction it was sent last, at the place of the left or upper pixel:

    messages [lag + 1 + strip * steps + step][label][direction][lane],    directions: right, down, down-left, down-right

(the first two with four neighbours).  The lower end of an edge that leads (1, dc) is lag + dc steps later in the next
lane.  Edges from lane 7 to lane 0 of the next strip are in ``across`` [strip][7 lag + column][label][direction - 1],
at the column of the upper pixel (their place in ``messages`` is not used), so that no strip touches the cache lines of
another.

Weights and shares (gamma) have the same order, [strip][step][...][lane].  Where all edges have one weight, all strips
but the first and the last have the same, so that three strips of them are enough: ``border`` says where those of a
strip begin.  What a kernel reads just before or after a strip, in another one, are lanes outside the image, which are
zero wherever that is.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.graph.graph import Kind
from tightmap.graph.lattice import equal_weights
from tightmap.graph.pixel_costs import both, cost_at
from tightmap.graph.stencil import Stencil
from tightmap.runtime import parallel
from tightmap.runtime.compiled import lean
from tightmap.runtime.simd import LANES

BIG = 1e30  # larger than every cost, and still finite in float32
SWEEP = 4  # linear costs that rise over more differences than this are handled by two sweeps over the labels
DIRECTIONS = ((0, 1), (1, 0), (1, -1), (1, 1))


class Strips(NamedTuple):
    """A grid model in strip order, and its messages."""

    height: int
    width: int
    labels: int
    strips: int
    steps: int
    span: int  # columns of ``across`` per strip
    eight: bool  # neighbours; four if not
    window: int  # differences 1..window cost less than the truncation; -1: linear, by two sweeps
    quadratic: bool
    profile: npt.NDArray[Any]  # [0] truncation, [k] cost of the difference k
    numbers: npt.NDArray[Any]  # 0, 1, ..., labels - 1, BIG in the precision of the messages
    unary: npt.NDArray[Any]  # [strips][steps][labels][lane], in the type of the messages or uint16
    border: npt.NDArray[np.int64]  # [strips] the first step of a strip in the next two: p * steps, or one of three
    gamma: npt.NDArray[Any]  # [border + step][lane], 1 / max(edges forward, edges backward)
    weight: npt.NDArray[Any]  # [lag + 1 + border + step][direction][lane], float64
    messages: npt.NDArray[Any]  # see above
    across: npt.NDArray[Any]
    chosen: npt.NDArray[Any]  # [lag + 1 + strips * steps + lag + 1][lane], labels of the last rounding

    @property
    def directions(self) -> int:
        return 4 if self.eight else 2

    @property
    def lag(self) -> int:
        return 2 if self.eight else 1


@lean
def _put_images(first, last, image, height, width, size, lag, stride, offset, out):
    """[row][column][size] to [strip][step][size][offset + lane]; entries of a pixel are ``stride`` numbers apart."""
    steps = width + (LANES - 1) * lag
    for p in range(first, last):
        for k in range(steps):
            for l in range(LANES):
                r, c = p * LANES + l, k - lag * l
                if r < height and 0 <= c < width:
                    for t in range(size):
                        out[((p * steps + k) * size + t) * stride + offset + l] = image[(r * width + c) * size + t]


@lean
def _get_images(first, last, flat, height, width, size, lag, stride, offset, image):
    """The inverse of _put_images."""
    steps = width + (LANES - 1) * lag
    for r in range(first, last):
        p, l = r // LANES, r % LANES
        for c in range(width):
            for t in range(size):
                place = ((p * steps + c + lag * l) * size + t) * stride + offset + l
                image[(r * width + c) * size + t] = flat[place]


@lean
def _put_unaries(first, last, unary, single, height, width, labels, lag, out, lowest):
    """As _put_images, less the smallest unary of every pixel; lowest[strip] is the sum of these."""
    steps = width + (LANES - 1) * lag
    for p in range(first, last):
        amount = 0.0
        for k in range(steps):
            for l in range(LANES):
                r, c = p * LANES + l, k - lag * l
                if r < height and 0 <= c < width:
                    base = (r * width + c) * labels
                    low = cost_at(unary, single, base)
                    for s in range(1, labels):
                        low = min(low, cost_at(unary, single, base + s))
                    amount += low
                    for s in range(labels):
                        out[((p * steps + k) * labels + s) * LANES + l] = cost_at(unary, single, base + s) - low
        lowest[p] = amount


@lean
def _whole_rows(first, last, unary, single, width, labels, whole):
    """whole[row]: less the smallest of its pixel, every unary of the row is a whole number below 65536."""
    for r in range(first, last):
        whole[r] = 1
        for i in range(r * width, (r + 1) * width):
            low = cost_at(unary, single, i * labels)
            for s in range(1, labels):
                low = min(low, cost_at(unary, single, i * labels + s))
            worst = 0.0
            for s in range(labels):
                v = cost_at(unary, single, i * labels + s) - low
                worst = max(worst, abs(v - np.floor(v)) if v < 65536.0 else 1.0)
            if worst > 0.0:  # the first pixel that is not whole ends the search
                whole[r] = 0
                break


@lean
def _put_gammas(first, last, weights, down, right, height, width, lag, table, gamma):
    """1 / max(edges forward, edges backward) of every pixel in strip order, by ``table``."""
    steps = width + (LANES - 1) * lag
    for r in range(first, last):
        for c in range(width):
            forward, backward = 0, 0
            for d in range(len(down)):
                if weights[d, r, c] > 0.0:
                    forward += 1
                above, left = r - down[d], c - right[d]
                if above >= 0 and 0 <= left < width and weights[d, above, left] > 0.0:
                    backward += 1
            gamma[((r // LANES) * steps + c + lag * (r % LANES)) * LANES + r % LANES] = table[max(forward, backward)]


def gammas(dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """1 / max(1, k) for k = 0, ..., 4, rounded down: what stays at a node, 1 - k gamma, must not be negative."""
    exact = 1.0 / np.array([1.0, 1.0, 2.0, 3.0, 4.0])
    rounded = exact.astype(dtype)
    return np.where(rounded > exact, np.nextafter(rounded, np.zeros_like(rounded)), rounded)


def build_frame(stencil: Stencil, dtype: npt.DTypeLike) -> Strips:
    """Strip order of a stencil whose displacements are among DIRECTIONS, without unaries and messages."""
    height, width, labels = stencil.height, stencil.width, stencil.labels
    places = [DIRECTIONS.index((int(r), int(c))) for r, c in stencil.displacements]
    eight = max(places) > 1
    directions, lag = (4, 2) if eight else (2, 1)
    strips, steps = -(-height // LANES), width + (LANES - 1) * lag
    front, span = lag + 1, steps + (LANES - 1) * lag + 1

    # where weights are equal: the rows of the first strip, of one in the middle and of the last one
    weights, kinds = stencil.weights, strips
    if stencil.equal is not None:
        kinds = min(strips, 3)
        shown = height - (strips - kinds) * LANES
        steps_of = [(int(r), int(c)) for r, c in stencil.displacements]
        weights = equal_weights(shown, width, steps_of, stencil.equal)
    rows = weights.shape[1]
    weight = np.zeros((front + kinds * steps) * directions * LANES)
    inside = weight[front * directions * LANES :]
    for place, image in zip(places, weights, strict=True):
        shape = (rows, width, 1, lag, directions * LANES, place * LANES)
        parallel.run(_put_images, kinds, image.reshape(-1), *shape, inside)
    gamma = np.ones(kinds * steps * LANES, dtype=dtype)
    down, right = (np.ascontiguousarray(column) for column in stencil.displacements.T)
    parallel.run(_put_gammas, rows, weights, down, right, rows, width, lag, gammas(dtype), gamma)
    border = np.arange(strips, dtype=np.int64)
    if kinds < strips:
        border[2:-1] = 1
        border[-1] = 2

    truncation = float(stencil.profile.max())
    window = int((stencil.profile[1:] < truncation).sum())
    if window > SWEEP and stencil.kind == Kind.LINEAR:
        window = -1
    nothing = np.zeros(0, dtype=dtype)
    return Strips(
        height,
        width,
        labels,
        strips,
        steps,
        span,
        eight,
        window,
        stencil.kind == Kind.QUADRATIC,
        np.concatenate(([truncation], stencil.profile[1:])).astype(dtype),
        np.append(np.arange(labels), BIG).astype(dtype),
        nothing,
        border * steps,
        gamma,
        weight,
        nothing,
        nothing,
        nothing,
    )


def fill_strips(frame: Strips, unary: npt.NDArray[Any], before: Strips | None = None) -> tuple[Strips, float]:
    """The frame with these unaries (in either precision) and messages of zero, or copies of those before; and what was
    taken off the unaries.

    The smallest unary of every pixel becomes zero: whatever the costs are counted from, float32 sees the differences.
    Whole numbers below 65536 are kept in 16 bits beside messages in float32.  Sweeps over many labels are limited by
    memory bandwidth, and this saves a tenth of it; models that are small enough for float64 have less to move.
    """
    height, width, labels, lag, dtype = frame.height, frame.width, frame.labels, frame.lag, frame.gamma.dtype
    strips, nodes, front = frame.strips, frame.strips * frame.steps, frame.lag + 1
    whole = np.zeros(height, dtype=np.uint8)
    if dtype == np.float32:
        parallel.run(_whole_rows, height, *both(unary), width, labels, whole)
    own = np.zeros(nodes * labels * LANES, dtype=np.uint16 if whole.all() else dtype)
    lowest = np.zeros(strips)
    parallel.run(_put_unaries, strips, *both(unary), height, width, labels, lag, own, lowest)
    if before is None:
        messages = np.zeros((front + nodes) * frame.directions * labels * LANES, dtype=dtype)
        across = np.zeros((strips + 1) * frame.span * (frame.directions - 1) * labels, dtype=dtype)
    else:
        messages, across = before.messages.copy(), before.across.copy()
    grid = frame._replace(
        unary=own,
        messages=messages,
        across=across,
        chosen=np.zeros((front + nodes + front) * LANES, dtype=dtype),
    )
    return grid, float(lowest.sum())


def _inside(grid: Strips) -> npt.NDArray[Any]:
    """The messages without the padding in front."""
    return grid.messages[(grid.lag + 1) * grid.directions * grid.labels * LANES :]


def _across(grid: Strips) -> npt.NDArray[Any]:
    """[strip][column][label][direction - 1] of the edges from the last row of every strip."""
    side = (LANES - 1) * grid.lag
    shape = (grid.strips + 1, grid.span, grid.labels, grid.directions - 1)
    return grid.across.reshape(shape)[1:, side : side + grid.width]


def images_of_messages(grid: Strips) -> npt.NDArray[Any]:
    """(directions, height, width, labels): messages of the edges from every pixel to the right, down, and so on."""
    images = np.empty((grid.directions, grid.height, grid.width, grid.labels), dtype=grid.messages.dtype)
    for d, image in enumerate(images):
        shape = (grid.height, grid.width, grid.labels, grid.lag, grid.directions * LANES, d * LANES)
        parallel.run(_get_images, grid.height, _inside(grid), *shape, image.reshape(-1))
        last = image[LANES - 1 :: LANES]
        if d > 0:
            last[:] = _across(grid)[: len(last), :, :, d - 1]
    return images


def set_messages(grid: Strips, images: npt.NDArray[Any]) -> None:
    """The inverse of images_of_messages."""
    for d, image in enumerate(images):
        shape = (grid.height, grid.width, grid.labels, grid.lag, grid.directions * LANES, d * LANES)
        parallel.run(_put_images, grid.strips, image.reshape(-1), *shape, _inside(grid))
        last = image[LANES - 1 :: LANES]
        if d > 0:
            _across(grid)[: len(last), :, :, d - 1] = last


def chosen_labels(grid: Strips, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The labels of the last rounding, pixel by pixel."""
    labels = np.empty(grid.height * grid.width, dtype=dtype)
    shape = (grid.height, grid.width, 1, grid.lag, LANES, 0)
    parallel.run(_get_images, grid.height, grid.chosen[(grid.lag + 1) * LANES :], *shape, labels)
    return labels
