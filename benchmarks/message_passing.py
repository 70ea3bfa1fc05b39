"""SRMP, MPLP and MPLP-C on the real models: energies, certified bounds, status, seconds, iterations; time of a sweep.

    python benchmarks/message_passing.py [--only NAME ...] [--sweeps]

A row says "yes" when the row's goal is reached: the stated status, or a bound above the stated one.  Kernels are
compiled before the clock starts.  Models come from TIGHTMAP_DATA (default ../shared/data) or from tightmap.problems.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import tightmap as tm
from tightmap.moves.context import Context
from tightmap.problems.images import read_image, shrink
from tightmap.problems.second_order import second_order_stereo
from tightmap.problems.segmentation import segmentation
from tightmap.solvers.regions.clusters import pair_clusters, square_clusters
from tightmap.solvers.regions.regions import build_regions
from tightmap.solvers.regions.srmp import SrmpRun
from tightmap.solvers.regions.sweeps import AHEAD

DATA = Path(os.environ.get("TIGHTMAP_DATA", Path(__file__).parents[2] / "shared" / "data"))


@dataclass(frozen=True)
class Row:
    name: str
    build: Callable[[], tm.Model]
    method: str
    seconds: float
    options: dict[str, Any] = field(default_factory=dict)
    above: float = -np.inf  # the bound to exceed
    proven: bool = False  # the status to reach


def data(name: str, **options: Any) -> Callable[[], tm.Model]:
    return lambda: tm.read(DATA / name, **options)


def cones(factor: int = 3) -> tm.Model:
    """Second-order stereo on a real pair, 14 plane proposals (needs scikit-image)."""
    left, right = (shrink(read_image(DATA / f"middlebury/cones/im{k}.png"), factor) for k in (2, 6))
    return second_order_stereo(left, right, 14)[0]


INPAINTING = "inpainting/{}-triplepoint4-plain-ring{}.h5"
ROWS = [
    Row("ring N4", data(INPAINTING.format("n4", "")), "srmp", 5, proven=True),
    Row("inverse N4", data(INPAINTING.format("n4", "-inverse")), "srmp", 60, {"clusters": "squares"}, 411.87),
    Row("inverse N8", data(INPAINTING.format("n8", "-inverse")), "srmp", 60, {"clusters": "squares"}, 415.83),
    Row("matching0", data("matching/matching0.dd", unmatched=False), "mplp-c", 20, proven=True),
    Row("matching0", data("matching/matching0.dd", unmatched=False), "srmp", 20, {"clusters": "triplets"}, proven=True),
    *(Row(f"segmentation {s}", lambda s=s: segmentation(s), "srmp", 5, proven=True) for s in range(1, 11)),
    Row("second order", cones, "srmp", 60),
    Row("second order", cones, "srmp", 60, {"clusters": "pairs"}),
    Row("UAI segmentation", data("uai/Segmentation_11.uai"), "srmp", 5, proven=True),
    Row("UAI protein", data("uai/ProteinFolding_11.uai"), "mplp-c", 10),
    Row("UAI objects", data("uai/ObjectDetection_11.uai"), "mplp-c", 10),
    Row("UAI wcsp", data("uai/wcsp_11.uai"), "mplp-c", 10),
    Row("UAI wcsp", data("uai/wcsp_11.uai"), "srmp", 10),
    Row("UAI promedas 11", data("uai/Promedas_11.uai"), "srmp", 10),
    Row("UAI promedas", data("uai/Promedas_24.uai", evidence=DATA / "uai/Promedas_24.uai.evid"), "srmp", 10),
    Row("1aho", data("wcsp/1aho.cfn.gz"), "mplp", 5, proven=True),
    Row("example.wcsp", data("wcsp/example.wcsp"), "mplp-c", 5, proven=True),
    Row("404.wcsp", data("wcsp/404.wcsp.xz"), "mplp-c", 10),
    Row("bqp100-1", data("wcsp/bqp100-1.qpbo"), "mplp-c", 10),
]


def quality(only: list[str]) -> None:
    heads = ("model", "method", "energy", "bound", "status", "s", "its")
    print("{:18} {:16} {:>14} {:>16} {:>12} {:>7} {:>6}  goal".format(*heads))
    for row in ROWS:
        if only and not any(o in row.name for o in only):
            continue
        try:
            model = row.build()
        except (FileNotFoundError, ImportError) as error:
            print(f"{row.name:18} left out: {error}")
            continue
        model.graph()
        tm.solve(model, row.method, max_iterations=1, **row.options)  # compile
        r = tm.solve(model, row.method, time_limit=row.seconds, **row.options)
        goal = ""
        if row.proven or row.above > -np.inf:
            reached = r.status is tm.Status.OPTIMAL if row.proven else r.lower_bound > row.above
            goal = "yes" if reached else "NO"
        method = " ".join([row.method, *row.options.values()])
        print(
            f"{row.name:18} {method:16} {r.energy:14.9g} {r.lower_bound:16.10g} {r.status.name:>12} {r.elapsed:7.2f} "
            f"{r.iterations:6d}  {goal}",
            flush=True,
        )


def sweeps() -> None:
    """Milliseconds of an iteration (forward and backward), a rounding and a certificate; best of five."""
    print(f"{'model':18} {'clusters':9} {'messages':>10} {'iteration':>10} {'rounding':>9} {'certificate':>11}  ms")
    for row in ROWS:
        if row.method != "srmp" or (row.name.startswith("segmentation") and row.name != "segmentation 1"):
            continue
        try:
            graph = row.build().graph()
        except (FileNotFoundError, ImportError) as error:
            print(f"{row.name:18} left out: {error}")
            continue
        kind = str(row.options.get("clusters", "none"))
        if kind == "triplets":
            continue
        added = {"none": lambda _: [], "squares": square_clusters, "pairs": pair_clusters}[kind](graph)
        run = SrmpRun(build_regions(graph, "full", added), Context())
        best = [np.inf] * 3
        for _ in range(6):
            clock = [time.perf_counter()]
            list(run.iteration(False, False))
            clock.append(time.perf_counter())
            list(run.rounded(AHEAD, False))
            clock.append(time.perf_counter())
            run.certificate()
            clock.append(time.perf_counter())
            best = [min(b, t) for b, t in zip(best, np.diff(clock), strict=True)]
        times = "{:10.1f} {:9.1f} {:11.1f}".format(*(1e3 * b for b in best))
        print(f"{row.name:18} {kind:9} {run.regions.entries:10d} {times}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="rows whose name contains one of these")
    parser.add_argument("--sweeps", action="store_true", help="time of one iteration instead of the table")
    chosen = parser.parse_args()
    if chosen.sweeps:
        sweeps()
    else:
        quality(chosen.only)
