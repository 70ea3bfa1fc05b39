"""Dual decomposition on the paper's models: ad3, bundle and subgradient beside trws and srmp at equal time.

    python benchmarks/decomposition.py [--only NAME ...] [--methods A ...] [--scale 1.0] [--threads 2]

Every row says what the paper's own BUNDLE and ADDD reached (bound, value, seconds) and what is to be reached here; the
last column names what was missed.  ``--scale 0.1`` gives every run a tenth of its limit, for a quick look.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass, field

import tightmap as tm
from tightmap.bench.instances import PAPER
from tightmap.errors import ModelError

METHODS = ("bundle", "ad3", "subgradient", "trws", "srmp")


@dataclass(frozen=True)
class Reach:
    """Within ``limit`` seconds: a bound of at least, an energy of at most, or the proof."""

    limit: float
    bound: float = -math.inf
    energy: float = math.inf
    prove: bool = False
    options: dict[str, object] = field(default_factory=dict)

    def missed(self, result: tm.Result) -> str:
        parts = []
        if result.lower_bound < self.bound:
            parts.append(f"bound below {self.bound:.10g}")
        if result.energy > self.energy:
            parts.append(f"energy above {self.energy:.10g}")
        if self.prove and result.status is not tm.Status.OPTIMAL:
            parts.append("not proven")
        return ", ".join(parts)


@dataclass(frozen=True)
class Row:
    model: str  # family/name, or the beginning of it
    paper: str
    limit: float  # of the methods without a figure to reach
    reach: dict[str, Reach]


ROWS = (
    Row(
        "inpainting-n4/ring-inverse", "BUNDLE 411.87, 425.90, 44 s; ADDD 402.83, 482.23, 29 s", 20,
        {"bundle": Reach(20, 411.86, 424.90), "ad3": Reach(60, 411.5)},
    ),
    Row("inpainting-n8/ring-inverse", "BUNDLE 415.83, 435.32, 113 s", 60, {"bundle": Reach(60, 415.8, 434.84)}),
    Row("stereo/tsukuba", "BUNDLE 369218 proven, 671 s", 60, {"bundle": Reach(60, energy=369218, prove=True)}),
    Row("stereo/venus", "BUNDLE value 3061733, 1918 s", 120, {"bundle": Reach(120, energy=3061733)}),
    Row("stereo/teddy", "BUNDLE value 1563172, 3530 s", 120, {"bundle": Reach(120, energy=1563172)}),
    Row(
        "matching/matching0", "bounds 11.27 (BUNDLE), 11.56 (ADDD)", 20,
        {"bundle": Reach(20, 11.27), "ad3": Reach(20, 11.56)},
    ),
    Row(
        "segmentation/", "ADDD bound 1400.33, BUNDLE 1392.01 (means of its own models)", 10,
        {"ad3": Reach(60, prove=True, options={"exact": True})},
    ),
    Row("second-order/", "values 14226.93 (ADDD) and 15221.19 (BUNDLE) on its own models", 30, {}),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="part of a model's name")
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    print(f"{'model':28}{'method':13}{'limit':>6}{'s':>8}{'bound':>15}{'energy':>15}  status")
    for row in ROWS:
        found = [i for i in PAPER if f"{i.family}/{i.name}".startswith(row.model)]
        for instance in found:
            name = f"{instance.family}/{instance.name}"
            if given.only and not any(part in name for part in given.only):
                continue
            if instance.missing:
                print(f"{name}: {instance.missing}, left out")
                continue
            print(f"{name:28}paper: {row.paper}")
            model = instance.build().model
            for method in given.methods:
                reach = row.reach.get(method, Reach(row.limit))
                show(model, name, method, reach, given.scale, given.threads)


def show(model: tm.Model, name: str, method: str, reach: Reach, scale: float, threads: int) -> None:
    limit = reach.limit * scale
    begin = time.perf_counter()
    try:
        result = tm.solve(model, method, time_limit=limit, threads=threads, **reach.options)  # type: ignore[arg-type]
    except ModelError:
        return  # takes no model of this kind
    seconds = time.perf_counter() - begin
    missed = reach.missed(result)
    print(
        f"{name:28}{method:13}{limit:6.3g}{seconds:8.2f}{result.lower_bound:15.8g}{result.energy:15.8g}  "
        f"{result.status.name}{'   MISSED: ' + missed if missed else ''}",
        flush=True,
    )


if __name__ == "__main__":
    main()
