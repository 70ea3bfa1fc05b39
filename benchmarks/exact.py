"""The exact search on the real models: seconds to the proof, or energy and bound at the limit.

    python benchmarks/exact.py [--limit 60] [--only NAME ...] [--alone]

Prints a table in Markdown, one line per model; processor seconds of one thread, compilation left out.  Where pytoulbar2
is installed, its default search runs on the same model (written as .cfn) with the same limit.  Models come from
TIGHTMAP_DATA (default ../shared/data).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import tightmap as tm

DATA = Path(os.environ.get("TIGHTMAP_DATA", Path(__file__).parents[2] / "shared" / "data"))
MODELS = [
    "wcsp/example.wcsp",
    "wcsp/zebra.wcsp",
    "wcsp/celar6sub0.wcsp",
    "wcsp/CELAR6SUB1.cfn.gz",
    "wcsp/1aho.cfn.gz",
    "wcsp/404.wcsp.xz",
    "wcsp/bqp100-1.qpbo",
    "uai/Promedas_11.uai",
    "uai/Promedas_24.uai",
    "uai/Segmentation_11.uai",
    "uai/Segmentation_12.uai",
    "uai/ProteinFolding_11.uai",
    "uai/wcsp_11.uai",
    "uai/ObjectDetection_11.uai",
    "uai/Grids_18.uai",
    "maxcut/G11.txt",
    "matching/matching0.dd",
    "inpainting/n4-triplepoint4-plain-ring.h5",
]
# what runs in a process of its own: it can neither be interrupted nor trusted to give its memory back
OTHER = """
import json, sys, time
import pytoulbar2
begin = time.process_time()
net = pytoulbar2.CFN()
net.Read(sys.argv[1])
found = net.Solve(timeLimit=int(sys.argv[2]), showSolutions=0)
print("RESULT", json.dumps([found[1] if found else None, net.GetDDualBound(), time.process_time() - begin]))
"""


def read(file: str) -> tm.Model:
    path = DATA / file
    if path.suffix == ".uai":
        return tm.read(path, evidence=f"{path}.evid")
    return tm.read(path)


def warm_up() -> None:
    """Compile everything on a model that uses it."""
    rng = np.random.default_rng(0)
    model = tm.Model([3] * 12)
    model.add_factors([(i, j) for i in range(12) for j in range(i)], rng.integers(0, 9, (66, 3, 3)).astype(float))
    model.add_factors([[0, 1, 2]], rng.integers(0, 9, (1, 3, 3, 3)).astype(float))
    tm.solve(model, "exact", elimination=0)


def own(model: tm.Model, limit: float) -> tuple[tm.Result, float]:
    begin = time.process_time()
    result = tm.solve(model, "exact", time_limit=limit, threads=1)
    return result, time.process_time() - begin


def other(model: tm.Model, limit: float) -> tuple[float, float, float] | None:
    """Energy, bound and seconds of the other solver, or None when it does not answer."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.cfn"
        tm.write(model, path)
        command = [sys.executable, "-c", OTHER, str(path), str(int(limit))]
        try:
            out = subprocess.run(command, capture_output=True, text=True, timeout=4 * limit + 30, check=False).stdout
        except subprocess.TimeoutExpired:
            return None
    for line in out.splitlines():
        if line.startswith("RESULT "):
            energy, bound, seconds = json.loads(line[7:])
            return float("nan") if energy is None else energy, bound, seconds
    return None


def number(value: float) -> str:
    return f"{value:.9g}" if np.isfinite(value) else "–"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds per model and solver")
    parser.add_argument("--only", nargs="*", help="parts of file names")
    parser.add_argument("--alone", action="store_true", help="do not run the other solver")
    args = parser.parse_args()
    compare = not args.alone and importlib.util.find_spec("pytoulbar2") is not None
    warm_up()
    print("| model | variables, labels, order | exact: status | energy | bound | s | toulbar2: energy | bound | s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for file in MODELS:
        if args.only and not any(part in file for part in args.only):
            continue
        if not (DATA / file).exists():
            print(f"| {file} | not there |", flush=True)
            continue
        model = read(file)
        graph = model.graph()
        result, seconds = own(model, args.limit)
        row = f"| {Path(file).name} | {graph.n}, {len(graph.arrays.unary)}, {graph.order} | {result.status.name} "
        row += f"| {number(result.energy)} | {number(result.lower_bound)} | {seconds:.2f} "
        answer = other(model, args.limit) if compare else None
        row += "| – | – | – |" if answer is None else f"| {number(answer[0])} | {number(answer[1])} | {answer[2]:.2f} |"
        print(row, flush=True)


if __name__ == "__main__":
    main()
