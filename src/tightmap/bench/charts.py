"""Energy and bound against time as SVG, drawn by hand so that the page's colours (and dark mode) apply."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 78, 12, 12, 40
# mid-tones that are legible on white and on near-black; after these, dash patterns tell methods apart
COLOURS = (
    "#2b83ba", "#e06c1f", "#2a9d6f", "#c2559d", "#b8860b", "#7b6fd0", "#d7404a", "#4f9bd9", "#7a9a01", "#8c6d5a",
    "#0b9aa3", "#9a9a9a",
)  # fmt: skip


@dataclass(frozen=True)
class Series:
    """One method: points are (seconds, energy or None, bound or None)."""

    name: str
    colour: str
    points: list[tuple[float, float | None, float | None]]


def colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def value_range(series: list[Series]) -> tuple[float, float] | None:
    """The part of the energy axis where the methods differ: around the best energy and the best bound.

    The first energies of a run are often far above everything else; the top is where the worst method ends, but not
    beyond three times the distance between the best value and the best bound (or 2 % of the value, if that is more).
    """
    finals = [e for s in series for e in [_last(s, 1)] if e is not None]
    bounds = [b for s in series for b in [_last(s, 2)] if b is not None]
    if not finals:
        return None
    best = min(finals)
    floor = max((b for b in bounds if b <= best), default=best)
    step = max(best - floor, 0.02 * abs(best), 1e-9)
    high = min(max(finals), best + 3 * step)
    low = max(min([best, *bounds]), best - 3 * step)
    margin = 0.08 * max(high - low, 0.2 * step)
    return low - margin, high + margin


def _last(series: Series, index: int) -> float | None:
    known = [p[index] for p in series.points if p[index] is not None]
    return known[-1] if known else None


def ticks(low: float, high: float, count: int = 7) -> list[float]:
    """Round numbers within low .. high."""
    span = high - low
    if not span > 0:
        return [low]
    raw = span / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * k for k in (1, 2, 5, 10) if power * k >= raw)
    first = math.ceil(low / step)
    return [k * step for k in range(first, math.floor(high / step) + 1)]


def time_ticks(low: float, high: float) -> list[float]:
    """Powers of ten, with 2 and 5 between them where there are few."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    digits = (1, 2, 5) if math.log10(high / low) < 2.5 else (1,)
    return [d * 10.0**k for k in decades for d in digits if low <= d * 10.0**k <= high]


def _seconds(value: float) -> str:
    return f"{value:g} s" if value >= 1e-3 else f"{value * 1e3:g} ms"


def convergence_svg(title: str, series: list[Series], identity: str) -> str:
    """One chart; ``identity`` makes the ids of the page unique.  Empty when there is nothing to draw."""
    limits = value_range(series)
    times = [p[0] for s in series for p in s.points if p[0] > 0]
    if limits is None or not times:
        return ""
    low, high = limits
    first = max(min(times) * 0.8, 1e-4)
    last = max(max(times) * 1.1, first * 10)

    def across(t: float) -> float:
        t = min(max(t, first), last)
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(t / first) / math.log(last / first)

    def down(v: float) -> float:
        # far outside of the frame is as good as infinitely far, and keeps the numbers short
        place = TOP + (HEIGHT - TOP - BOTTOM) * (high - v) / (high - low)
        return min(max(place, -HEIGHT), 2 * HEIGHT)

    out = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="{identity}-t {identity}-d" class="chart">',
        f'<title id="{identity}-t">{escape(title)}</title>',
        f'<desc id="{identity}-d">{escape(describe(series))}</desc>',
        f'<clipPath id="{identity}-c"><rect x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" '
        f'height="{HEIGHT - TOP - BOTTOM}"/></clipPath>',
    ]
    digits = max(0, 2 - math.floor(math.log10(high - low)))
    for value in ticks(low, high):
        y = down(value)
        out.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.{min(digits, 6)}f}</text>')
    for value in time_ticks(first, last):
        x = across(value)
        out.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        kind = "" if math.log10(value).is_integer() else ' class="minor"'  # left out where the page is narrow
        place = f'x="{x:.1f}" y="{HEIGHT - BOTTOM + 17}" text-anchor="middle"'
        out.append(f"<text{kind} {place}>{_seconds(value)}</text>")
    out.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">time (logarithmic)</text>'
    )
    out.append(f'<g clip-path="url(#{identity}-c)">')
    for one in series:
        for index, style in ((1, ""), (2, ' stroke-dasharray="6 4"')):
            path = _steps(one, index, across, down)
            if path:
                kind = "energy" if index == 1 else "lower bound"
                out.append(
                    f'<path d="{path}" fill="none" stroke="{one.colour}" stroke-width="2"{style}>'
                    f"<title>{escape(one.name)}, {kind}</title></path>"
                )
    out.append("</g></svg>")
    return "".join(out)


def _steps(series: Series, index: int, across: Callable[[float], float], down: Callable[[float], float]) -> str:
    """A path that keeps a value until the next one is found."""
    parts: list[str] = []
    for point in series.points:
        value = point[index]
        if value is None:
            continue
        x, y = across(point[0]), down(value)
        parts.append(f"H{x:.1f}V{y:.1f}" if parts else f"M{x:.1f} {y:.1f}")
    return "".join(parts)


def describe(series: list[Series]) -> str:
    """The chart in words: where every method ends."""
    parts = []
    for one in series:
        energy, bound = _last(one, 1), _last(one, 2)
        text = f"{one.name}: energy {energy:.6g}" if energy is not None else f"{one.name}: no labelling"
        parts.append(text + (f", bound {bound:.6g}" if bound is not None else ""))
    return "; ".join(parts) + "."
