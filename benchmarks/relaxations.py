"""BCD, PGD, FW and CQP on the real models: energies and seconds beside the published ones.

    python benchmarks/relaxations.py [--methods pgd fw ...] [--families stereo ...] [--threads 2] [--time-limit S]

Needs the real models (environment variable TIGHTMAP_DATA).  Every method runs with its default options.  The last table
compares means over the models of a family, which is what the paper's tables report; the published times were measured
by its authors on their machine.  Kernels are compiled before the clock starts.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np

import tightmap as tm
from tightmap.bench import published

DATA = Path(os.environ.get("TIGHTMAP_DATA", Path(__file__).parents[2] / "shared" / "data"))
METHODS = ("bcd", "pgd", "fw", "cqp")
FAMILIES = {  # family -> {published instance: (file, what the paper's energy has more)}
    "inpainting-n4": {
        "triplepoint4-plain-ring": ("inpainting/n4-triplepoint4-plain-ring.h5", 0.0),
        "triplepoint4-plain-ring-inverse": ("inpainting/n4-triplepoint4-plain-ring-inverse.h5", 0.0),
    },
    "inpainting-n8": {
        "triplepoint4-plain-ring": ("inpainting/n8-triplepoint4-plain-ring.h5", 0.0),
        "triplepoint4-plain-ring-inverse": ("inpainting/n8-triplepoint4-plain-ring-inverse.h5", 0.0),
    },
    "matching": {"matching0": ("matching/matching0.dd", 190.0)},
    "stereo": {
        "tsu-gm": ("stereo/tsukuba-gm.npz", 0.0),
        "ven-gm": ("stereo/venus-gm.npz", 0.0),
        "ted-gm": ("stereo/teddy-gm.npz", 0.0),
    },
}


def compile_kernels(methods: list[str]) -> None:
    """One small run of every method on every kind of table that the real models have, small and large."""
    for side in (3, 130):
        model = tm.Model.grid(side, side, 4)
        edges = model.edges()
        third = len(edges) // 3
        model.add_unaries(np.random.default_rng(0).random((side * side, 4)))
        model.add_potts(edges[:third], np.ones(third))
        model.add_truncated_linear(edges[third : 2 * third], np.ones(third), 2.0)
        model.add_factors(edges[2 * third :], np.random.default_rng(1).random((4, 4)))
        for method in methods:
            tm.solve(model, method, max_iterations=3)
            if method == "bcd":
                tm.solve(model, method, max_iterations=3, incremental=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--time-limit", type=float, default=None)
    chosen = parser.parse_args()
    compile_kernels(chosen.methods)

    print(f"{'model':<46} {'method':<6} {'energy':>13} {'published':>13} {'bound':>14} {'iterations':>10} {'s':>8}")
    means: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for family in chosen.families:
        figures = published.of(family)
        for instance, (file, more) in FAMILIES[family].items():
            if not (DATA / file).exists():
                print(f"{family}/{instance}: {file} is not in TIGHTMAP_DATA ({DATA})")
                continue
            model = tm.read(DATA / file)
            model.graph()
            for method in chosen.methods:
                result = tm.solve(model, method, threads=chosen.threads, time_limit=chosen.time_limit)
                value, theirs = result.energy + more, figures[instance, method].value
                assert theirs is not None
                means.setdefault((family, method), []).append((value, theirs, result.elapsed))
                bound = f"{result.lower_bound + more:14.2f}" if np.isfinite(result.lower_bound) else f"{'-':>14}"
                print(
                    f"{family + '/' + instance:<46} {method:<6} {value:13.2f} {theirs:13.2f} {bound} "
                    f"{result.iterations:10d} {result.elapsed:8.2f}",
                    flush=True,
                )
    print(f"\n{'family':<16} {'method':<6} {'mean energy':>13} {'published':>13} {'difference':>11} {'mean s':>8}")
    for (family, method), rows in means.items():
        value, theirs, seconds = np.mean(rows, axis=0)
        print(
            f"{family:<16} {method:<6} {value:13.2f} {theirs:13.2f} {100 * (value / theirs - 1):+10.2f}% {seconds:8.2f}"
        )


if __name__ == "__main__":
    main()
