"""TRW-S sweeps on 4-connected grids, eight rows at a time.

A sweep visits the pixels in raster order, and a pixel only waits for its left and upper neighbours.  Pixels on an
anti-diagonal are therefore independent, and visiting eight of them together gives exactly (bit for bit) what the
raster order gives.  So the image is cut into strips of eight rows, lane l of a SIMD register holds row l of the strip,
and at step k lane l is at column k - l:

    pixel (8 p + l, c)   is lane l of strip p at step k = c + l,      0 <= k < steps = width + 7.

Everything is stored in that order, [strip][step][label][lane], and streams through memory in a straight line.  Labels
are visited one after the other, so Potts, truncated linear and truncated quadratic messages need no shuffling of
lanes and no padding of labels, whatever their number.  Lanes outside the image meet edges of weight zero only, and
the messages of those stay zero.

One message per edge (general.py): ``right`` and ``down`` hold the message of the edge to the right and to the
lower neighbour, in whichever direction it was sent last, at the place of the left or upper pixel, with one step of
padding in front.  The edges from lane 7 to lane 0 of the next strip are in ``across`` [strip][7 + column][label]
(their place in ``down`` is not used), so that no strip touches the cache lines of another.

With several threads the strips are dealt out in turn; a strip follows its predecessor at a distance of a few steps.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.graph.graph import Kind
from tightmap.graph.stencil import Stencil
from tightmap.runtime.compiled import compiled
from tightmap.runtime.simd import (
    LANES,
    cast,
    choose_less,
    get,
    lane,
    load,
    load_as,
    maximum,
    minimum,
    prefetch,
    put,
    replace_last,
    shift_down,
    shift_up,
    splat,
    store,
)
from tightmap.runtime.sync import publish, wait_for

FAST = {"contract", "nsz"}
AHEAD = 4  # memory is prefetched so many steps before it is read
CHUNK = 32  # steps that are made before the thread of the next strip is told
BIG = 1e30  # larger than every cost, and still finite in float32
SWEEP = 4  # linear costs that rise over more differences than this are handled by two sweeps over the labels


class Strips(NamedTuple):
    """A grid model in strip order, and its messages."""

    height: int
    width: int
    labels: int
    strips: int
    steps: int
    window: int  # differences 1..window cost less than the truncation; -1: linear, by two sweeps
    quadratic: bool
    profile: npt.NDArray[Any]  # [0] truncation, [k] cost of the difference k
    numbers: npt.NDArray[Any]  # 0, 1, ..., labels - 1, BIG in the precision of the messages
    unary: npt.NDArray[Any]  # [strips][steps][labels][lane], in the type of the messages or uint16
    gamma: npt.NDArray[Any]  # [strips][steps][lane], 1 / max(edges forward, edges backward)
    weight_right: npt.NDArray[Any]  # [1 + strips * steps + 1][lane], float64
    weight_down: npt.NDArray[Any]
    right: npt.NDArray[Any]  # messages, see above
    down: npt.NDArray[Any]
    across: npt.NDArray[Any]
    chosen: npt.NDArray[Any]  # [1 + strips * steps + 1][lane], labels of the last rounding


def to_strips(image: npt.NDArray[Any], dtype: npt.DTypeLike, fill: float = 0.0) -> npt.NDArray[Any]:
    """(height, width, ...) in the order [strip][step][...][lane]."""
    height, width = image.shape[:2]
    strips = -(-height // LANES)
    out = np.full((strips, width + LANES - 1, *image.shape[2:], LANES), fill, dtype=dtype)
    for row in range(LANES):
        mine = image[row::LANES]
        out[: len(mine), row : row + width, ..., row] = mine
    return out


def from_strips(flat: npt.NDArray[Any], height: int, width: int, *tail: int) -> npt.NDArray[Any]:
    """The inverse of to_strips: (height, width, *tail)."""
    strips = -(-height // LANES)
    flat = flat.reshape(strips, width + LANES - 1, *tail, LANES)
    out = np.empty((strips * LANES, width, *tail), dtype=flat.dtype)
    for row in range(LANES):
        out[row::LANES] = flat[:, row : row + width, ..., row]
    return out[:height]


PART = 1 << 16  # unaries that are looked at together


def compact(unary: npt.NDArray[np.float64], dtype: npt.DTypeLike) -> npt.DTypeLike:
    """The smallest type that holds the unaries as they are: whole numbers below 65536 need 16 bits.

    Sweeps over many labels are limited by memory bandwidth, and this saves a tenth of it.
    """
    flat = unary.reshape(-1)
    for first in range(0, flat.size, PART):  # the first part that is not whole ends the search
        part = flat[first : first + PART]
        if part.min() < 0.0 or part.max() >= 65536.0 or (part % 1.0).any():
            return dtype
    return np.uint16


def build_strips(stencil: Stencil, unary: npt.NDArray[np.float64], dtype: npt.DTypeLike) -> Strips:
    """Strip order of a stencil whose displacements are (0, 1) and (1, 0) (or one of the two)."""
    height, width, labels = stencil.height, stencil.width, stencil.labels
    weights = {(int(r), int(c)): w for (r, c), w in zip(stencil.displacements, stencil.weights, strict=True)}
    nothing = np.zeros((height, width))
    padded = [np.pad(to_strips(weights.get(d, nothing), np.float64).reshape(-1), LANES) for d in ((0, 1), (1, 0))]
    r, c = np.arange(height)[:, None], np.arange(width)
    backward = (r > 0).astype(np.int8) + (c > 0)
    forward = (r < height - 1).astype(np.int8) + (c < width - 1)
    gamma = np.array([1.0, 1.0, 0.5])[np.maximum(forward, backward)]
    truncation = float(stencil.profile.max())
    window = int((stencil.profile[1:] < truncation).sum())
    if window > SWEEP and stencil.kind == Kind.LINEAR:
        window = -1
    profile = np.concatenate(([truncation], stencil.profile[1:])).astype(dtype)
    strips, steps = -(-height // LANES), width + LANES - 1
    places = (strips * steps + 1) * labels * LANES
    return Strips(
        height,
        width,
        labels,
        strips,
        steps,
        window,
        stencil.kind == Kind.QUADRATIC,
        profile,
        np.append(np.arange(labels), BIG).astype(dtype),
        to_strips(unary.reshape(height, width, labels), compact(unary, dtype)).reshape(-1),
        to_strips(gamma, dtype, fill=1.0).reshape(-1),
        padded[0],
        padded[1],
        np.zeros(places, dtype=dtype),
        np.zeros(places, dtype=dtype),
        np.zeros((strips + 1) * (steps + LANES - 1) * labels, dtype=dtype),
        np.zeros((strips * steps + 2) * LANES, dtype=dtype),
    )


def images_of_messages(grid: Strips) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """(height, width, labels) messages of the edges to the right and down of every pixel."""
    row = grid.labels * LANES
    right = from_strips(grid.right[row:], grid.height, grid.width, grid.labels)
    down = from_strips(grid.down[row:], grid.height, grid.width, grid.labels)
    across = grid.across.reshape(grid.strips + 1, -1, grid.labels)[1:, LANES - 1 : LANES - 1 + grid.width]
    down[LANES - 1 :: LANES] = across[: len(down[LANES - 1 :: LANES])]
    return right, down


def set_messages(grid: Strips, right: npt.NDArray[Any], down: npt.NDArray[Any]) -> None:
    """The inverse of images_of_messages."""
    row = grid.labels * LANES
    grid.right[row:] = to_strips(right, right.dtype).reshape(-1)
    lanes = to_strips(down, down.dtype)
    lanes[..., LANES - 1] = 0.0
    grid.down[row:] = lanes.reshape(-1)
    across = grid.across.reshape(grid.strips + 1, -1, grid.labels)[1:, LANES - 1 : LANES - 1 + grid.width]
    across[: len(down[LANES - 1 :: LANES])] = down[LANES - 1 :: LANES]


@compiled(_nrt=False, fastmath=FAST, forceinline=True)
def prepare(h, labels, pad, window, profile, weight, rises):
    """What a message needs before its entries can be read off: weighted steps, or the two sweeps."""
    if window >= 0:
        for k in range(window):
            store(rises, k * LANES, weight * splat(get(profile, k + 1)))
    else:
        before = load(h, pad * LANES)
        for s in range(1, labels):
            before = minimum(load(h, (pad + s) * LANES), before + weight)
            store(h, (pad + s) * LANES, before)
        for s in range(labels - 2, -1, -1):
            before = minimum(load(h, (pad + s) * LANES), before + weight)
            store(h, (pad + s) * LANES, before)


@compiled(_nrt=False, fastmath=FAST, forceinline=True)
def entry(h, t, pad, window, rises, lowest, cap):
    """Entry t of the message, min_s h(s) + weight * cost(|s - t|), less its minimum (which is min h)."""
    value = minimum(load(h, (pad + t) * LANES), cap)
    for k in range(window):
        near = minimum(load(h, (pad + t - 1 - k) * LANES), load(h, (pad + t + 1 + k) * LANES))
        value = minimum(value, near + load(rises, k * LANES))
    return value - lowest


@compiled(_nrt=False, fastmath=FAST, forceinline=True)
def weight_above(grid, p, k):
    """Weights of the edges to the upper neighbours of the eight pixels at step k."""
    above = 0.0
    if p > 0:
        above = get(grid.weight_down, ((p - 1) * grid.steps + k + LANES) * LANES + LANES - 1)
    return shift_up(load(grid.weight_down, (p * grid.steps + k) * LANES), above)


@compiled(_nrt=False, fastmath=FAST, forceinline=True)
def _pair(s, other, weight, truncation, quadratic):
    """weight * cost of the difference between label s and eight labels."""
    d = maximum(s - other, other - s)
    if quadratic:
        d = d * d
    return weight * minimum(d, truncation)


@compiled(_nrt=False, fastmath=FAST, forceinline=True)
def _round(grid, p, k, forward, energies):
    """Label eight pixels, given the labels chosen before and the messages of the other neighbours."""
    S, right, down, across, chosen = grid.labels, grid.right, grid.down, grid.across, grid.chosen
    node = p * grid.steps + k
    row = S * LANES
    here = (node + 1) * row
    into, out = (p * (grid.steps + 7) + 7 + k) * S, ((p + 1) * (grid.steps + 7) + k) * S
    beyond = get(chosen, 0)  # outside the image; its edge has weight zero
    if forward:  # chosen before: the left and the upper neighbour
        x_a = load(chosen, node * LANES)
        if p > 0:
            beyond = get(chosen, ((p - 1) * grid.steps + k + LANES) * LANES + LANES - 1)
        x_b = shift_up(x_a, beyond)
        w_a = cast(load(grid.weight_right, node * LANES), right)
        w_b = cast(weight_above(grid, p, k), right)
    else:  # the right and the lower neighbour
        x_a = load(chosen, (node + 2) * LANES)
        if p < grid.strips - 1:
            beyond = get(chosen, ((p + 1) * grid.steps + k - LANES + 2) * LANES)
        x_b = shift_down(x_a, beyond)
        w_a = cast(load(grid.weight_right, (node + 1) * LANES), right)
        w_b = cast(load(grid.weight_down, (node + 1) * LANES), right)
    truncation = splat(get(grid.profile, 0))
    best = splat(get(grid.numbers, S))
    x = splat(get(grid.numbers, 0))
    paid = x
    for s in range(S):
        o = s * LANES
        if forward:
            rest = load(right, here + o) + replace_last(load(down, here + o), get(across, out + s))
        else:
            rest = load(right, here - row + o) + shift_up(load(down, here - row + o), get(across, into + s))
        label = splat(get(grid.numbers, s))
        cost = load_as(grid.unary, node * row + o, right) + _pair(label, x_a, w_a, truncation, grid.quadratic)
        cost = cost + _pair(label, x_b, w_b, truncation, grid.quadratic)
        rest = rest + cost
        x = choose_less(rest, best, label, x)
        paid = choose_less(rest, best, cost, paid)
        best = minimum(rest, best)
    store(chosen, (node + 1) * LANES, x)
    store(energies, p * LANES, load(energies, p * LANES) + cast(paid, energies))


@compiled(_nrt=False, fastmath=FAST)
def forward_steps(grid, p, first, last, rounding, energies, a, b, rise_a, rise_b):
    """Steps first, ..., last - 1 of strip p, sending to the right and down."""
    S, right, down, across = grid.labels, grid.right, grid.down, grid.across
    row, pad = S * LANES, max(grid.window, 0)
    zero = get(grid.numbers, 0)
    for k in range(first, last):
        if rounding:
            _round(grid, p, k, True, energies)
        node = p * grid.steps + k
        here = (node + 1) * row
        into, out = (p * (grid.steps + 7) + 7 + k) * S, ((p + 1) * (grid.steps + 7) + k) * S
        gamma = load(grid.gamma, node * LANES)
        low_a = splat(get(grid.numbers, S))
        low_b = low_a
        for s in range(S):
            o = s * LANES
            prefetch(grid.unary, node * row + o + AHEAD * row)
            prefetch(right, here + o + AHEAD * row)
            prefetch(down, here + o + AHEAD * row)
            old_a = load(right, here + o)
            old_b = replace_last(load(down, here + o), get(across, out + s))
            total = load_as(grid.unary, node * row + o, right) + old_a + old_b
            total = total + load(right, here - row + o) + shift_up(load(down, here - row + o), get(across, into + s))
            h_a = gamma * total - old_a
            h_b = gamma * total - old_b
            low_a = minimum(low_a, h_a)
            low_b = minimum(low_b, h_b)
            store(a, pad * LANES + o, h_a)
            store(b, pad * LANES + o, h_b)
        w_a = cast(load(grid.weight_right, (node + 1) * LANES), right)
        w_b = cast(load(grid.weight_down, (node + 1) * LANES), right)
        prepare(a, S, pad, grid.window, grid.profile, w_a, rise_a)
        prepare(b, S, pad, grid.window, grid.profile, w_b, rise_b)
        cap_a = low_a + w_a * splat(get(grid.profile, 0))
        cap_b = low_b + w_b * splat(get(grid.profile, 0))
        for t in range(S):
            o = t * LANES
            store(right, here + o, entry(a, t, pad, grid.window, rise_a, low_a, cap_a))
            v = entry(b, t, pad, grid.window, rise_b, low_b, cap_b)
            store(down, here + o, replace_last(v, zero))
            put(across, out + t, lane(v, LANES - 1))


@compiled(_nrt=False, fastmath=FAST)
def backward_steps(grid, p, first, last, rounding, energies, a, b, rise_a, rise_b):
    """Steps last - 1, ..., first of strip p, sending to the left and up."""
    S, right, down, across = grid.labels, grid.right, grid.down, grid.across
    row, pad = S * LANES, max(grid.window, 0)
    zero = get(grid.numbers, 0)
    for k in range(last - 1, first - 1, -1):
        if rounding:
            _round(grid, p, k, False, energies)
        node = p * grid.steps + k
        here = (node + 1) * row
        into, out = (p * (grid.steps + 7) + 7 + k) * S, ((p + 1) * (grid.steps + 7) + k) * S
        gamma = load(grid.gamma, node * LANES)
        low_a = splat(get(grid.numbers, S))
        low_b = low_a
        for s in range(S):
            o = s * LANES
            prefetch(grid.unary, node * row + o - AHEAD * row)
            prefetch(right, here - row + o - AHEAD * row)
            prefetch(down, here - row + o - AHEAD * row)
            old_a = load(right, here - row + o)
            old_b = shift_up(load(down, here - row + o), get(across, into + s))
            total = load_as(grid.unary, node * row + o, right) + old_a + old_b
            total = total + load(right, here + o) + replace_last(load(down, here + o), get(across, out + s))
            h_a = gamma * total - old_a
            h_b = gamma * total - old_b
            low_a = minimum(low_a, h_a)
            low_b = minimum(low_b, h_b)
            store(a, pad * LANES + o, h_a)
            store(b, pad * LANES + o, h_b)
        w_a = cast(load(grid.weight_right, node * LANES), right)
        w_b = cast(weight_above(grid, p, k), right)
        prepare(a, S, pad, grid.window, grid.profile, w_a, rise_a)
        prepare(b, S, pad, grid.window, grid.profile, w_b, rise_b)
        cap_a = low_a + w_a * splat(get(grid.profile, 0))
        cap_b = low_b + w_b * splat(get(grid.profile, 0))
        for t in range(S):
            o = t * LANES
            store(right, here - row + o, entry(a, t, pad, grid.window, rise_a, low_a, cap_a))
            v = entry(b, t, pad, grid.window, rise_b, low_b, cap_b)
            put(across, into + t, lane(v, 0))
            store(down, here - row + o, shift_down(v, zero))


@compiled
def sweep(grid, forward, rounding, energies, thread, threads, progress):
    """This thread's share of one pass; ``progress`` (zeros) has one counter per strip, a cache line apart."""
    pad = max(grid.window, 0)
    a = np.full((grid.labels + 2 * pad) * LANES, grid.numbers[grid.labels])
    b = np.full((grid.labels + 2 * pad) * LANES, grid.numbers[grid.labels])
    rise_a = np.zeros((pad + 1) * LANES, a.dtype)
    rise_b = np.zeros((pad + 1) * LANES, a.dtype)
    for turn in range(thread, grid.strips, threads):
        p = turn if forward else grid.strips - 1 - turn
        before = p - 1 if forward else p + 1
        for done in range(0, grid.steps, CHUNK):
            end = min(done + CHUNK, grid.steps)
            if threads > 1 and turn > 0 and not wait_for(progress, before * LANES, min(end + LANES - 1, grid.steps)):
                return
            if forward:
                forward_steps(grid, p, done, end, rounding, energies, a, b, rise_a, rise_b)
            else:
                backward_steps(grid, p, grid.steps - end, grid.steps - done, rounding, energies, a, b, rise_a, rise_b)
            publish(progress, p * LANES, end)
