"""What makes ADMM work: one change at a time, from the printed algorithm to the default, on every family.

    python benchmarks/ablation.py [--limit S] [--threads N] [--only NAME ...] [--reference]

Every row has all changes of the rows above it; the rows below the line change one thing of the default.  Energies after
the same time (10 seconds by default), one seed.  ``--reference`` also runs the plain NumPy version of the printed
algorithm, with the printed sign of the last update and with the right one, beside the fast one on a small model.

as printed          one cycle, each clique once, rho *= 1.2 on stalls, rho0 by the largest cost (sections 4 and 5.1)
symmetrised         each clique in all rotations of its positions, with a share of its cost each
slow growth         rho grows by 0.3 % per iteration instead of on stalls, in units of the model's own kappa
over-relaxation     1.6
restarts            ten cycles with noise, results fused
coarse grids        searches on coarse grids first
polishing           dynamic programming over rows, columns or forests; the default
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import tightmap as tm
from tightmap.bench.instances import PAPER

PLAIN: dict[str, Any] = {"restarts": 1, "polish": False, "multiscale": False}
STEPS: dict[str, dict[str, Any]] = {
    "as printed": {**PLAIN, "preset": "paper", "symmetrize": False},
    "symmetrised": {**PLAIN, "preset": "paper", "symmetrize": True},
    "slow growth": {**PLAIN, "symmetrize": True},
    "over-relaxation": {**PLAIN, "symmetrize": True, "overrelax": 1.6},
    "restarts": {**PLAIN, "symmetrize": True, "restarts": 10},
    "coarse grids": {"polish": False, "restarts": 10},
    "default": {},
}
CHANGES: dict[str, dict[str, Any]] = {
    "star": {"decomposition": "star"},
    "symmetric": {"decomposition": "symmetric"},
    "all simplices": {"sets": "all_simplex"},
    "unaries split": {"unary_split": True},
    "double": {"precision": "double"},
}
MODELS = (
    "inpainting-n4/ring",
    "inpainting-n4/ring-inverse",
    "inpainting-n8/ring-inverse",
    "matching/matching0",
    "stereo/tsukuba",
    "segmentation/seed-1",
    "second-order/motorcycle-4",
)


def reference_rows() -> None:
    """The printed algorithm in NumPy: with the sign of (38) as printed, and with that of the Lagrangian."""
    from tightmap.problems import inpainting
    from tightmap.reference import admm as reference

    model = inpainting(24, inverse=True)
    right = reference.centre

    def printed(decomposition: str, x: Any, y: Any, p: Any, d: int, rho: float) -> Any:
        if decomposition == "cyclic" and d == len(x) - 1:
            return x[d - 1] + (y[d] + p) / rho
        return right(decomposition, x, y, p, d, rho)

    fast = tm.solve(model, "admm", **STEPS["as printed"])
    plain = reference.admm(model)
    reference.centre = printed
    try:
        wrong = reference.admm(model)
    finally:
        reference.centre = right
    print("\nring-inverse of 24 x 24 pixels, the printed algorithm without a time limit")
    print(f"  fast kernels               {fast.energy:12.6f}")
    print(f"  NumPy, sign corrected      {plain.energy:12.6f}")
    print(f"  NumPy, sign as printed     {wrong.energy:12.6f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=10.0)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--reference", action="store_true")
    given = parser.parse_args()
    chosen = [i for i in PAPER if f"{i.family}/{i.name}" in MODELS]
    chosen = [i for i in chosen if not given.only or any(part in f"{i.family}/{i.name}" for part in given.only)]
    table: dict[str, list[str]] = {name: [] for name in (*STEPS, *CHANGES)}
    names = []
    for instance in chosen:
        if instance.missing:
            print(f"{instance.family}/{instance.name}: {instance.missing}, left out")
            continue
        names.append(instance.name)
        model = instance.build().model
        for name, options in (STEPS | CHANGES).items():
            tm.solve(model, "admm", time_limit=5.0, max_iterations=20, **options)  # compiles
            begin = time.perf_counter()
            result = tm.solve(model, "admm", time_limit=given.limit, threads=given.threads, **options)
            table[name].append(f"{result.energy:.6g} ({time.perf_counter() - begin:.1f} s)")
            print(f"{instance.family}/{instance.name:16} {name:18} {table[name][-1]}", flush=True)
    print(f"\n| {given.limit:g} s | " + " | ".join(names) + " |")
    print("|---|" + "---|" * len(names))
    for name, cells in table.items():
        print(f"| {name} | " + " | ".join(cells) + " |")
    if given.reference:
        reference_rows()
    return 0


if __name__ == "__main__":
    sys.exit(main())
