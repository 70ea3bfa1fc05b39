"""How time and memory grow with a model: seconds and bytes per node on Potts grids of 10^4 to 10^7 nodes.

    python benchmarks/growth.py [--large] [--sizes 10000 100000] [--stages trws] [--labels 5] [--threads 1]
                                [--keep rows.jsonl] [--plot growth.svg]
    python benchmarks/growth.py --auto 10 --sizes 1000000 10000000 --labels 16 --threads 2

Every figure is from a process of its own.  ``model`` builds the grid, ``graph`` is its canonical form; of a method,
``iteration`` is the difference of two runs, one three times as long, divided by the iterations that it has more, and
``start`` what the shorter one takes beside its iterations (of expansion, a whole run of one sweep).  Everything is done
once before it is timed, since memory that a process has not had before comes slowly from some systems, and then the
best of two counts.  Bytes per node are what the process grew by at its largest, model included, beyond 8 bytes per
unary cost; bytes per node and label are all it grew by, those included.
An exponent e is fitted to seconds = c n^e from 3 10^5 nodes on: smaller images have a list of their edges, and what
does not depend on the model counts there as well.

``--auto`` gives ``auto`` so many seconds, each size in a process of its own that has read its kernels before: random
unaries, Potts of weight 0.5 with 5 labels, else truncated linear of limit 4 and weight 0.1; how good is it by then?

With ``--keep`` rows are added to a file, and table, exponents and plot are of all rows of it: large sizes can be
measured stage by stage.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

METHODS = {"trws": 16, "admm": 20, "expansion": 1}  # iterations of the shorter run
STAGES = ("model", "graph", *METHODS)
VISIBLE = 900_000  # nodes: smaller models fit into memory that the process had before
FITTED = 300_000  # nodes from which on exponents are fitted
SIZES = (10_000, 31_684, 100_000, 316_000, 1_000_000)
LARGE = (3_160_000, 10_000_000)


def grid(side: int, labels: int) -> Any:
    """Noise around blocks of 20 by 20 pixels, the weights one number."""
    import tightmap as tm

    rng = np.random.default_rng(0)
    truth = rng.integers(0, labels, (side // 20 + 1,) * 2).repeat(20, 0).repeat(20, 1)[:side, :side]
    unary = rng.random((side, side, labels), dtype=np.float32)
    for label in range(labels):
        unary[..., label] -= np.float32(0.15) * (truth == label)
    del truth
    begin = time.perf_counter()
    model = tm.Model.grid(side, side, labels)
    model.add_unaries(unary)
    model.add_potts(model.edges(), 0.3)
    return model, time.perf_counter() - begin


def memory(name: str) -> int:
    """Bytes of this process: VmRSS are those now, VmHWM the most there were."""
    with open("/proc/self/status") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith(name))


def measure(stage: str, nodes: int, labels: int, threads: int) -> dict[str, float]:
    """In this process: one stage on one size."""
    import tightmap as tm

    side = math.isqrt(nodes)

    def run(model: Any, count: int) -> float:
        options: dict[str, Any] = {"multiscale": False, "growth": 1.001} if stage == "admm" else {}
        begin = time.perf_counter()
        tm.solve(model, stage, max_iterations=count, threads=threads, keep_state=False, **options)
        return time.perf_counter() - begin

    for size in (40, 520):  # kernels are read; the larger one has no list of edges
        model, _ = grid(size, labels)
        model.graph()
        if stage in METHODS:
            run(model, 2)
    del model
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the most there were is counted from here
    built, canonical = [], []
    for _ in range(3):
        model = None  # two of them would count twice
        model, seconds = grid(side, labels)
        built.append(seconds)
        begin = time.perf_counter()
        if stage != "model":
            model.graph()
        canonical.append(time.perf_counter() - begin)
    n = side * side
    out = {"nodes": float(n), "start": min((built if stage == "model" else canonical)[1:])}
    if stage in METHODS:
        count = METHODS[stage]
        run(model, count)
        out["start"] = min(run(model, count) for _ in range(2))
        if count > 1:
            out["iteration"] = max(min(run(model, 3 * count) for _ in range(2)) - out["start"], 1e-9) / (2 * count)
            out["start"] -= count * out["iteration"]
    out["bytes"] = (memory("VmHWM") - before) / n - 8.0 * labels
    out["labels"] = float(labels)
    return out


def within(seconds: float, nodes: int, labels: int, threads: int) -> dict[str, float]:
    """In this process: what ``auto`` has found on a random grid after so many seconds."""
    import tightmap as tm

    def noise(side: int) -> Any:
        unary = np.random.default_rng(0).random((side * side, labels), dtype=np.float32)
        model = tm.Model.grid(side, side, labels)
        model.add_unaries(unary)
        if labels == 5:
            model.add_potts(model.edges(), 0.5)
        else:
            model.add_truncated_linear(model.edges(), 0.1, 4)
        return model

    tm.solve(noise(600), "auto", time_limit=1.5, threads=threads)  # kernels are read; as large images, no list of edges
    model = noise(math.isqrt(nodes))
    labelled: list[float] = []

    def note(progress: Any) -> None:
        if not labelled and math.isfinite(progress.energy):
            labelled.append(time.perf_counter() - begin)

    begin = time.perf_counter()
    result = tm.solve(model, "auto", time_limit=seconds, threads=threads, callback=note, keep_state=False)
    return {
        "nodes": float(math.isqrt(nodes) ** 2),
        "end": time.perf_counter() - begin,
        "first": labelled[0],
        "iterations": float(result.iterations),
        "energy": result.energy,
        "bound": result.lower_bound,
        "peak": memory("VmHWM") / 2**20,
    }


def exponent(rows: list[dict[str, float]], column: str) -> float:
    some = [r for r in rows if r["nodes"] >= FITTED and r.get(column, 0.0) > 0.0]
    if len(some) < 2:
        return math.nan
    return float(np.polyfit(np.log([r["nodes"] for r in some]), np.log([r[column] for r in some]), 1)[0])


def draw(found: dict[str, list[dict[str, float]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4))
    for stage, rows in found.items():
        column = "iteration" if "iteration" in rows[0] else "start"
        nodes = [r["nodes"] for r in rows]
        axes[0].loglog(nodes, [1e9 * r[column] / r["nodes"] for r in rows], "o-", label=stage)
        some = [r for r in rows if r["nodes"] >= VISIBLE]
        axes[1].semilogx([r["nodes"] for r in some], [r["bytes"] for r in some], "o-", label=stage)
    axes[0].set(xlabel="nodes", ylabel="ns per node (methods: per iteration)")
    axes[1].set(xlabel="nodes", ylabel="bytes per node beyond the unaries", ylim=(0, None))
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--large", action="store_true", help="10^7 nodes as well")
    parser.add_argument("--sizes", type=int, nargs="+")
    parser.add_argument("--stages", nargs="+", default=STAGES, choices=STAGES)
    parser.add_argument("--labels", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--auto", type=float, help="seconds: what auto has found by then, nothing else")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child == "auto":
        print(json.dumps(within(options.auto, options.sizes[0], options.labels, options.threads)))
        return
    if options.child:
        print(json.dumps(measure(options.child, options.sizes[0], options.labels, options.threads)))
        return
    sizes = options.sizes or [*SIZES, *(LARGE if options.large else ())]
    common = ["--labels", str(options.labels), "--threads", str(options.threads)]
    if options.auto:
        print("| nodes | labels | first labelling, s | iterations | energy | bound | gap, % | end, s | peak, MiB |")
        print("|---|---|---|---|---|---|---|---|---|")
        for nodes in sizes:
            command = [sys.executable, __file__, "--child", "auto", "--auto", str(options.auto), "--sizes", str(nodes)]
            row = json.loads(subprocess.run(command + common, stdout=subprocess.PIPE, check=True).stdout)
            gap = 100.0 * (row["energy"] - row["bound"]) / abs(row["energy"])
            print(
                f"| {row['nodes']:.0f} | {options.labels} | {row['first']:.2f} | {row['iterations']:.0f} "
                f"| {row['energy']:.0f} | {row['bound']:.0f} | {gap:.2f} | {row['end']:.1f} | {row['peak']:.0f} |",
                flush=True,
            )
        return
    found: dict[str, list[dict[str, float]]] = {}
    if options.keep and options.keep.exists():
        for line in options.keep.read_text().splitlines():
            row = json.loads(line)
            found.setdefault(row.pop("stage"), []).append(row)
    for stage in options.stages:
        for nodes in sizes:
            command = [sys.executable, __file__, "--child", stage, "--sizes", str(nodes)]
            done = subprocess.run(command + common, capture_output=True, text=True)
            if done.returncode != 0:
                print(done.stderr[-500:], file=sys.stderr)
                continue
            row = json.loads(done.stdout.splitlines()[-1])
            found.setdefault(stage, []).append(row)
            if options.keep:
                with options.keep.open("a") as file:
                    file.write(json.dumps({"stage": stage} | row) + "\n")
    columns = "start, ns per node | iteration, ns per node | bytes per node beyond the unaries | per node and label"
    print(f"| | nodes | {columns} |")
    print("|---|---|---|---|---|---|")
    for stage in (stage for stage in STAGES if stage in found):
        found[stage].sort(key=lambda row: row["nodes"])
        for row in found[stage]:
            n = row["nodes"]
            each = f"{1e9 * row['iteration'] / n:.1f}" if "iteration" in row else ""
            size = whole = ""
            if n >= VISIBLE:
                size, count = f"{row['bytes']:.0f}", row.get("labels", 0.0)  # files of before do not tell the labels
                whole = f"{row['bytes'] / count + 8.0:.1f}" if count else ""
            print(f"| {stage} | {n:.0f} | {1e9 * row['start'] / n:.0f} | {each} | {size} | {whole} |")
    print()
    for stage, rows in found.items():
        columns = ["start", *(["iteration"] if "iteration" in rows[0] else [])]
        print(f"{stage}: " + ", ".join(f"{c} n^{exponent(rows, c):.2f}" for c in columns))
    if options.plot:
        draw(found, options.plot)


if __name__ == "__main__":
    main()
