"""Graph cuts on the real models: energies against the published ones, and time against PyMaxflow and gco in one run.

    python benchmarks/graphcuts.py [--repeat 3] [--models tsukuba teddy ...] [--peers gco PyMaxflow]
    python benchmarks/graphcuts.py --orders      starts and label orders of expansion on models it was not tuned on

Needs the real models (environment variable TIGHTMAP_DATA) and, for the second table, `pip install tightmap[bench]`.
Times are the best of the repetitions, wall clock and CPU; ours count everything from the model in memory (building the
canonical graph and the networks), theirs everything from the same arrays.  "expansion, graph kept" starts where gco
starts on the models from files: from the canonical form.  Compilation is not counted.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tightmap as tm

DATA = Path(os.environ.get("TIGHTMAP_DATA", Path(__file__).parents[2] / "shared" / "data"))
RING = "inpainting/{}-triplepoint4-plain-ring{}.h5"
MODELS = {
    "ring-n4": RING.format("n4", ""),
    "inverse-n4": RING.format("n4", "-inverse"),
    "ring-n8": RING.format("n8", ""),
    "inverse-n8": RING.format("n8", "-inverse"),
    "tsukuba": "stereo/tsukuba-gm.npz",
    "venus": "stereo/venus-gm.npz",
    "teddy": "stereo/teddy-gm.npz",
}
PAPER = {  # energy of alpha-expansion, of FastPD, and bound of FastPD where it is printed
    "ring-n4": (484.59, 484.59, None),
    "inverse-n4": (424.12, 424.90, 205.21),
    "ring-n8": (495.20, 495.20, None),
    "inverse-n8": (434.84, 434.84, None),
    "tsukuba": (370255, 370825, 31900),
    "venus": (3138157, 3127923, None),
    "teddy": (1343176, 1344017, None),
}
SLOW = ("swap",)  # measured once on the stereo models


def measure(run: Callable[[], Any], repeat: int) -> tuple[Any, float, float]:
    """The last result, the best wall time and the best CPU time."""
    wall, cpu, out = np.inf, np.inf, None
    for _ in range(repeat):
        w, c = time.perf_counter(), time.process_time()
        out = run()
        wall, cpu = min(wall, time.perf_counter() - w), min(cpu, time.process_time() - c)
    return out, wall, cpu


def ours(name: str, method: str, keep: bool = False) -> Callable[[], tm.Result]:
    model = tm.read(DATA / MODELS[name])
    model.graph()

    def run() -> tm.Result:
        if not keep:
            model._graph = None  # count the canonical form too
        return tm.solve(model, method, threads=1)

    return run


# ------------------------------------------------------------------------------------------------- peers


def grid_arrays(name: str) -> tuple[np.ndarray, ...] | None:
    path = DATA / MODELS[name]
    if path.suffix != ".npz":
        return None
    data = np.load(path)
    return tuple(data[k].astype(np.int32) for k in ("D", "hw", "vw", "V"))


def is_metric(table: np.ndarray) -> bool:
    return bool((table[:, None, :] <= table[:, :, None] + table[None, :, :]).all())


def grid_energy(labels: np.ndarray, costs: np.ndarray, hw: np.ndarray, vw: np.ndarray, table: np.ndarray) -> float:
    x = labels.reshape(costs.shape[:2])
    own = np.take_along_axis(costs, x[..., None], 2).sum(dtype=np.int64)
    return float(own + (hw * table[x[:, :-1], x[:, 1:]]).sum() + (vw * table[x[:-1], x[1:]]).sum())


def gco_grid(costs: np.ndarray, hw: np.ndarray, vw: np.ndarray, table: np.ndarray) -> np.ndarray:
    import gco

    return np.asarray(gco.cut_grid_graph(costs, table, vw, hw, n_iter=-1, algorithm="expansion"))


def gco_general(model: tm.Model) -> np.ndarray:
    """gco rounds real costs to a scale of its own."""
    import gco

    graph = model.graph()
    labels = graph.max_labels
    unary = graph.arrays.unary.reshape(-1, labels)
    weight = graph.arrays.weight
    table = 1.0 - np.eye(labels)
    return np.asarray(gco.cut_general_graph(graph.edges, weight, unary, table, n_iter=-1, algorithm="expansion"))


def pymaxflow_grid(costs: np.ndarray, hw: np.ndarray, vw: np.ndarray, table: np.ndarray) -> np.ndarray:
    """alpha-expansion written with PyMaxflow's vectorised grid calls (its own one has no edge weights)."""
    import maxflow

    right, down = np.zeros((3, 3), np.int64), np.zeros((3, 3), np.int64)
    right[1, 2], down[2, 1] = 1, 1
    height, width, count = costs.shape
    x = costs.argmin(axis=2)
    rows, columns = np.indices(x.shape)
    quiet, alpha = 0, 0
    while quiet < count:
        graph = maxflow.Graph[int]()
        nodes = graph.add_grid_nodes((height, width))
        switch = costs[:, :, alpha].astype(np.int64) - costs[rows, columns, x]  # cost of taking alpha
        for w, structure, a, b in (
            (hw, right, np.s_[:, :-1], np.s_[:, 1:]),
            (vw, down, np.s_[:-1, :], np.s_[1:, :]),
        ):
            e00, e01, e10 = w * table[x[a], x[b]], w * table[x[a], alpha], w * table[alpha, x[b]]
            e01 = np.maximum(e01, e00 - e10)  # safe truncation where the table is no metric
            switch[a] += e10 - e00
            switch[b] -= e10
            back = np.zeros(x.shape, np.int64)
            back[b] = e01 + e10 - e00  # cost when b switches and a does not
            graph.add_grid_edges(nodes, back, structure[::-1, ::-1], symmetric=False)
        graph.add_grid_tedges(nodes, np.maximum(-switch, 0), np.maximum(switch, 0))
        gain = np.maximum(-switch, 0).sum() - graph.maxflow()
        if gain > 0:
            x = np.where(graph.get_grid_segments(nodes), x, alpha)
            quiet = 0
        else:
            quiet += 1
        alpha = (alpha + 1) % count
    return x


def peers(name: str) -> dict[str, tuple[Callable[[], np.ndarray], Callable[[np.ndarray], float]] | str]:
    out: dict[str, Any] = {}
    arrays = grid_arrays(name)
    try:
        import gco  # noqa: F401

        if arrays is None:
            model = tm.read(DATA / MODELS[name])
            model.graph()
            out["gco"] = (lambda: gco_general(model), lambda x: model.energy(x.ravel()))
        elif is_metric(arrays[3]):
            out["gco"] = (lambda: gco_grid(*arrays), lambda x: grid_energy(x, *arrays))
        else:
            out["gco"] = "aborts the interpreter: not a metric"
    except ImportError:
        out["gco"] = "not installed"
    if arrays is not None:
        try:
            import maxflow  # noqa: F401

            out["PyMaxflow"] = (lambda: pymaxflow_grid(*arrays), lambda x: grid_energy(x, *arrays))
        except ImportError:
            out["PyMaxflow"] = "not installed"
    return out


# ------------------------------------------------------------------------------------------------- starts and orders


def other_models() -> dict[str, tm.Model]:
    """Stereo pairs at half size with other costs than the benchmark's, and noisy pictures in six levels."""
    from tightmap.problems.images import read_image, shrink
    from tightmap.problems.segmentation import nested_regions
    from tightmap.problems.stereo import stereo

    kinds: dict[str, dict[str, Any]] = {
        "Potts": {"limit": 1, "weight": 10, "cap": 48, "gradient_threshold": 10, "gradient_penalty": 3},
        "linear": {"limit": 2, "weight": 20, "gradient_threshold": 8, "gradient_penalty": 2},
        "linear 5": {"limit": 5, "weight": 10},
        "quadratic": {"power": 2, "squared": True, "cap": 256, "limit": 7, "weight": 50},
    }
    models = {}
    for name, labels in (("cones", 32), ("teddy", 32), ("venus", 16)):
        left, right = (shrink(read_image(DATA / "middlebury" / name / f"{f}.png"), 2) for f in ("im2", "im6"))
        for kind, options in kinds.items():
            models[f"{kind}: {name}"] = stereo(left, right, labels, **options)
    for seed in range(10):
        image, truth = nested_regions(seed, 64, 6, 0.6)
        centres = np.array([image[truth == s].mean() if (truth == s).any() else 9.0 for s in range(6)])
        model = tm.Model.grid(64, 64, 6)
        model.add_unaries((image.reshape(-1, 1) - centres) ** 2 * 6.0 / image.var())
        edges = model.edges()
        if seed % 2:
            model.add_potts(edges, np.ones(len(edges)))
        else:
            model.add_truncated_linear(edges, np.full(len(edges), 0.5), 2.0)
        models[f"segmentation: {seed}"] = model
    return models


def compare_orders() -> None:
    from tightmap.energy.energies import unary_argmin
    from tightmap.graphcut.expansion import Expansion
    from tightmap.graphcut.pairwise import pair_model

    excess: dict[tuple[str, str, bool], dict[str, list[float]]] = {}
    for name, model in other_models().items():
        graph = model.graph()
        pairs, values = pair_model(graph), {}
        for start in ("label 0", "cheapest unaries"):
            for order in ("ascending", "descending", "random"):
                for largest in (True, False):
                    moves = Expansion(pairs, largest)
                    moves.begin(np.zeros(graph.n, np.int64) if start == "label 0" else unary_argmin(graph))
                    labels = np.arange(graph.max_labels)
                    labels = labels if order == "ascending" else labels[::-1]
                    labels = np.random.default_rng(0).permutation(labels) if order == "random" else labels
                    while sum(moves.move(int(c)) for c in labels):
                        pass
                    values[start, order, largest] = moves.cost + graph.constant
        best = min(values.values())
        for key, value in values.items():
            excess.setdefault(key, {}).setdefault(name.split(":")[0], []).append(100.0 * (value / best - 1.0))
    kinds = list(next(iter(excess.values())))
    print("| start | order | switch | " + " | ".join(kinds) + " |\n" + "|---" * (3 + len(kinds)) + "|")
    for (start, order, largest), row in excess.items():
        means = " | ".join(f"{np.mean(row[kind]):.3f}" for kind in kinds)
        print(f"| {start} | {order} | {'most' if largest else 'fewest'} | {means} |")


# ------------------------------------------------------------------------------------------------- tables


def main() -> None:
    parser = argparse.ArgumentParser(description="graph cuts on the real models")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--methods", nargs="*", default=["expansion", "fastpd", "swap"])
    parser.add_argument("--peers", nargs="*", default=["gco", "PyMaxflow"])
    parser.add_argument("--orders", action="store_true")
    args = parser.parse_args()
    if args.orders:
        compare_orders()
        return
    if not DATA.exists():
        raise SystemExit(f"the real models are not in TIGHTMAP_DATA ({DATA})")
    for method in args.methods:  # compile
        tm.solve(tm.read(DATA / MODELS["ring-n4"]), method, threads=1)
        small = tm.read(DATA / MODELS["tsukuba"])
        tm.solve(small, method, threads=1, time_limit=5.0)
    quality = ["| model | method | energy | paper | bound | paper | status |", "|---|---|---|---|---|---|---|"]
    speed = ["| model | program | energy | wall s | CPU s |", "|---|---|---|---|---|"]
    for name in args.models:
        for method in args.methods:
            stereo = MODELS[name].startswith("stereo")
            result, wall, cpu = measure(ours(name, method), 1 if method in SLOW and stereo else args.repeat)
            fast, dual, low = PAPER[name]
            said = {"expansion": fast, "fastpd": dual}.get(method)
            bound = f"{result.lower_bound:.8g}" if np.isfinite(result.lower_bound) else "–"
            said_low = f"{low:.8g}" if low and method == "fastpd" else "–"
            said_energy = f"{said:.8g}" if said else "–"
            row = (name, method, f"{result.energy:.8g}", said_energy, bound, said_low, result.status.name)
            quality.append("| " + " | ".join(row) + " |")
            speed.append(f"| {name} | {method} | {result.energy:.8g} | {wall:.3f} | {cpu:.3f} |")
            print(speed[-1], flush=True)
            if method == "expansion" and not stereo:
                result, wall, cpu = measure(ours(name, method, keep=True), args.repeat)
                speed.append(f"| {name} | {method}, graph kept | {result.energy:.8g} | {wall:.3f} | {cpu:.3f} |")
                print(speed[-1], flush=True)
        for program, peer in peers(name).items():
            if program not in args.peers:
                continue
            if isinstance(peer, str):
                speed.append(f"| {name} | {program} | – | {peer} | – |")
            else:
                labels, wall, cpu = measure(peer[0], 1 if name in ("venus", "teddy") else args.repeat)
                speed.append(f"| {name} | {program} | {peer[1](labels):.8g} | {wall:.3f} | {cpu:.3f} |")
            print(speed[-1], flush=True)
    print("\n## Quality\n")
    print("\n".join(quality))
    print("\n## Speed\n")
    print("\n".join(speed))


if __name__ == "__main__":
    main()
