"""Bounds of mplp-c by the kinds of clusters that it may add, at equal time on one thread.

python benchmarks/clusters.py [--limit 8] [--only spin] [--kinds all cycles singletons]
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import tightmap as tm
from lookalikes import FAMILIES

DATA = Path(os.environ.get("TIGHTMAP_DATA", Path(__file__).parents[1].parent / "shared" / "data"))
FILES = ("uai/Grids_18.uai", "uai/ProteinFolding_11.uai", "uai/ObjectDetection_11.uai", "families/75-26-5.uai")
LOOKALIKES = ("spin glass", "random CSP", "proteins", "grid of pairs")
SEED = 301


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=8.0)
    parser.add_argument("--only", nargs="*", help="part of a model's name")
    parser.add_argument("--kinds", nargs="*", default=["all", "triplets", "cycles", "singletons"])
    given = parser.parse_args()
    print(f"{'model':28}{'clusters':12}{'seconds':>8}{'energy':>16}{'bound':>16}{'added':>8}")
    for name in FILES + LOOKALIKES:
        if given.only and not any(part in name for part in given.only):
            continue
        if name in FILES and not (DATA / name).exists():
            print(f"{name}: not here, left out")
            continue
        for kind in given.kinds:
            model = tm.read(DATA / name) if name in FILES else FAMILIES[name](SEED)
            options = {"clusters": kind, "updates": "srmp"}
            result = tm.solve(model, "mplp-c", time_limit=given.limit, threads=1, **options)
            added = result.note.split("(")[1].split()[0]
            row = f"{result.elapsed:8.2f}{result.energy:16.9g}{result.lower_bound:16.9g}"
            print(f"{name:28}{kind:12}{row}{added:>8}", flush=True)


if __name__ == "__main__":
    main()
