"""How well time limits are kept: seconds beyond the limit, every method on every model, worst first.

    python benchmarks/limits.py [--limit 2] [--methods sa,lns] [--only NAME ...] [--large] [--grace 60] [MODEL ...]

Without models: the files of TIGHTMAP_DATA (default ../shared/data), the stereo pairs and the penguin with 256 labels.
``--large``: generated models with a few very large factors instead.  Every run is a process of its own that ends
itself ``grace`` seconds after its limit.  Times are those of tightmap's clock: compilation does not count.  The
canonical form of a model is made before the run, and the seconds that takes are in the column "build".  "busy" are
processor seconds after the limit, which other work on the machine does not change.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import tightmap as tm
from tightmap.factors.pattern import bell
from tightmap.registry import METHODS, solver_class
from tightmap.runtime import clock

DATA = Path(os.environ.get("TIGHTMAP_DATA", Path(__file__).parents[2] / "shared" / "data"))
SUFFIXES = (".uai", ".wcsp", ".cfn", ".qpbo", ".txt", ".mc", ".qubo", ".dd", ".h5", ".npz")
Build = Callable[[], tm.Model]


# ------------------------------------------------------------------------------------------------ large factors


def chain(cards: list[int], seed: int = 0) -> tm.Model:
    """A chain of random pairs, to which large factors are added."""
    rng = np.random.default_rng(seed)
    model = tm.Model(cards)
    model.add_unaries([rng.random(c) for c in cards])
    for i in range(len(cards) - 1):
        model.add_factors([[i, i + 1]], rng.random((cards[i], cards[i + 1])))
    return model


def one_table(*shape: int) -> tm.Model:
    model = chain(list(shape))
    model.add_factors([range(len(shape))], np.random.default_rng(1).random(shape))
    return model


def patterns(arity: int, labels: int, count: int = 3) -> tm.Model:
    model = chain([labels] * (arity + count))
    scopes = np.arange(arity) + np.arange(count)[:, None]
    model.add_label_patterns(scopes, np.random.default_rng(1).random(bell(arity)))
    return model


def exceptions(arity: int, labels: int, count: int, dear: bool) -> tm.Model:
    rng = np.random.default_rng(1)
    model = chain([labels] * (arity + 1))
    keys = np.unique(rng.integers(0, labels**arity, count))
    entries = np.stack(np.unravel_index(keys, (labels,) * arity), axis=1)
    model.add_sparse([range(arity), range(1, arity + 1)], entries, rng.random(len(keys)), 0.5 if dear else 1.0)
    return model


def agreement(arity: int, labels: int) -> tm.Model:
    model = chain([labels] * (3 * arity))
    scopes = np.arange(arity) + arity // 2 * np.arange(5)[:, None]
    model.add_pn_potts(scopes, np.full(5, 3.0), np.random.default_rng(1).random(labels))
    return model


def differences(labels: int, power: int, weight: float) -> tm.Model:
    model = tm.Model.grid(4, 5, labels)
    model.add_unaries(np.random.default_rng(1).random((20, labels)))
    add = model.add_truncated_linear if power == 1 else model.add_truncated_quadratic
    add(model.edges(), np.full(len(model.edges()), weight), 0.3 * labels**power)
    return model


def bends(labels: int, weight: float = 1.0) -> tm.Model:
    rng = np.random.default_rng(1)
    model = tm.Model([labels] * 12)
    model.add_unaries(rng.random((12, labels)))
    triples = [[i, i + 1, i + 2] for i in range(10)]
    model.add_second_difference(triples, np.full(10, weight), rng.random((12, labels)), 0.8)
    return model


def dense_pairs(variables: int, labels: int) -> tm.Model:
    rng = np.random.default_rng(1)
    model = tm.Model([labels] * variables)
    model.add_unaries(rng.random((variables, labels)))
    pairs = [[i, j] for i in range(variables) for j in range(i + 1, min(variables, i + 4))]
    model.add_factors(pairs, rng.random((len(pairs), labels, labels)))
    return model


def image(size: int, labels: int) -> tm.Model:
    model = tm.Model.grid(size, size, labels)
    model.add_unaries(np.random.default_rng(1).random((size * size, labels)))
    model.add_potts(model.edges(), np.full(len(model.edges()), 0.4))
    return model


LARGE: dict[str, Build] = {
    "table-4^11": lambda: one_table(*[4] * 11),
    "table-2^22": lambda: one_table(*[2] * 22),
    "table-160^3": lambda: one_table(160, 160, 160),
    "table-2048x2048": lambda: one_table(2048, 2048),
    "pattern-7x12": lambda: patterns(7, 12),
    "pattern-9x12": lambda: patterns(9, 12),
    "pattern-10x40": lambda: patterns(10, 40),
    "pattern-6x100": lambda: patterns(6, 100),
    "sparse-3x200-1e6-cheap": lambda: exceptions(3, 200, 1_000_000, False),
    "sparse-3x200-1e6-dear": lambda: exceptions(3, 200, 1_000_000, True),
    "sparse-6x30-3e6-cheap": lambda: exceptions(6, 30, 3_000_000, False),
    "sparse-6x30-3e6-dear": lambda: exceptions(6, 30, 3_000_000, True),
    "sparse-2x2000-1e6-dear": lambda: exceptions(2, 2000, 1_000_000, True),
    "agreement-127x20": lambda: agreement(127, 20),
    "agreement-127x2": lambda: agreement(127, 2),
    "agreement-8x12": lambda: agreement(8, 12),
    "linear-5000": lambda: differences(5000, 1, 1.0),
    "linear-5000-negative": lambda: differences(5000, 1, -1.0),
    "quadratic-5000": lambda: differences(5000, 2, 1.0),
    "bends-100": lambda: bends(100),
    "bends-500": lambda: bends(500),
    "bends-500-negative": lambda: bends(500, -1.0),
    "dense-200x256": lambda: dense_pairs(200, 256),
    "image-1000x4": lambda: image(1000, 4),
    "image-60x1000": lambda: image(60, 1000),
}


# ------------------------------------------------------------------------------------------------ real models


def from_file(path: Path) -> tm.Model:
    evidence = Path(str(path).removesuffix(".xz") + ".evid")
    return tm.read(path, evidence=evidence) if evidence.exists() else tm.read(path)


def stereo(name: str) -> tm.Model:
    from tightmap.problems import STEREO_PRESETS, read_image, stereo

    left, right = (read_image(DATA / f"stereo/{name}-im{side}.png") for side in "LR")
    return stereo(left, right, **STEREO_PRESETS[name])


def penguin() -> tm.Model:
    from tightmap.problems import read_image

    picture = read_image(DATA / "families/penguin-input.png", grey=True).astype(float)
    known = read_image(DATA / "families/penguin-mask.png", grey=True) > 0
    model = tm.Model.grid(*picture.shape, 256)
    model.add_unaries(np.where(known.reshape(-1, 1), (picture.reshape(-1, 1) - np.arange(256.0)) ** 2, 0.0))
    model.add_truncated_quadratic(model.edges(), np.full(len(model.edges()), 25.0), 200.0)
    return model


def real_models() -> dict[str, Build]:
    found: dict[str, Build] = {}
    for path in sorted(DATA.glob("*/*")):
        name = path.name.removesuffix(".xz").removesuffix(".gz")
        if name.endswith(SUFFIXES) and path.parent.name != "stereo":
            found[f"{path.parent.name}/{path.name}"] = lambda path=path: from_file(path)  # type: ignore[misc]
    for name in ("tsukuba", "venus", "teddy"):
        if (DATA / f"stereo/{name}-imL.png").exists():
            found[f"stereo/{name}"] = lambda name=name: stereo(name)  # type: ignore[misc]
    if (DATA / "families/penguin-input.png").exists():
        found["families/penguin"] = penguin
    return found


# ------------------------------------------------------------------------------------------------ measuring


def measured(model: tm.Model, method: str, limit: float, grace: float) -> dict[str, float | str]:
    """One run, in a process that is forked for it: the parent has solved nothing, so that there is nothing to lock."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        _report(model, method, limit, grace, write_end)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    found: dict[str, float | str] = json.loads(text) if text else {"status": "died"}
    return found


def _report(model: tm.Model, method: str, limit: float, grace: float, to: int) -> None:
    def tell(**what: object) -> None:
        os.write(to, json.dumps(what).encode())

    begin = clock.now()
    ended = threading.Event()
    at_limit = [float("inf")]  # processor seconds of this process when the limit passed

    def watch() -> None:
        while not ended.wait(0.01):
            if clock.now() - begin > limit and at_limit[0] > time.process_time():
                at_limit[0] = time.process_time()
            if clock.now() - begin > limit + grace:
                tell(status="given up", over=grace, busy=grace)
                os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    try:
        solver_class(method)
        begin = clock.now()
        result = tm.solve(model, method, time_limit=limit)
        seconds, busy = clock.now() - begin, max(0.0, time.process_time() - at_limit[0])
        ended.set()
        tell(
            status=result.status.name, over=seconds - limit, busy=busy, iterations=result.iterations,
            energy=result.energy,
        )  # fmt: skip
    except tm.ModelError as error:
        ended.set()
        tell(status="refused", over=clock.now() - begin - limit, note=str(error))
    except BaseException as error:
        ended.set()
        tell(status="error", over=clock.now() - begin - limit, note=f"{type(error).__name__}: {error}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="model files")
    parser.add_argument("--limit", type=float, default=2.0)
    parser.add_argument("--grace", type=float, default=60.0, help="seconds after the limit at which a run is given up")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--only", nargs="*", default=[], help="parts of names of models")
    parser.add_argument("--large", action="store_true")
    options = parser.parse_args()
    models: dict[str, Build]
    if options.models:
        models = {path: lambda path=path: from_file(Path(path)) for path in options.models}  # type: ignore[misc]
    else:
        models = LARGE if options.large else real_models()
    rows = []
    for name, build in models.items():
        if options.only and not any(part in name for part in options.only):
            continue
        begin = clock.now()
        try:
            model = build()
            model.graph()
        except tm.ModelError as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        building = clock.now() - begin
        for method in options.methods.split(","):
            found = measured(model, method, options.limit, options.grace)
            row = {"model": name, "method": method, "build": building, **found}
            rows.append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
    print("| over (s) | busy (s) | model | method | status | iterations | build (s) |\n|---|---|---|---|---|---|---|")
    for row in sorted(rows, key=lambda row: -float(row.get("over", 0.0))):
        if row["status"] != "refused":
            seconds = [f"{float(row.get(name, 0.0)):.2f}" for name in ("over", "busy", "build")]
            names = [str(row[name]) for name in ("model", "method", "status")]
            print("| " + " | ".join([*seconds[:2], *names, str(row.get("iterations", "")), seconds[2]]) + " |")


if __name__ == "__main__":
    begun = time.perf_counter()
    main()
    print(f"\n{time.perf_counter() - begun:.0f} s", file=sys.stderr)
