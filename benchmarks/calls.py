"""What a call costs beside the solving: small models, the same structure again, and many models.

    python benchmarks/calls.py [--size 200] [--frames 10] [--models 1000] [--ray]

overhead    milliseconds of ``solve`` on a 3 x 3 Potts model of three labels, kernels loaded, best of many
            and of building and solving models of ten variables
cuts        expansion on a Potts grid, with the building of the model, beside PyMaxflow's: milliseconds of processor
            time, one thread
prepare     frames of a Potts grid, in each of which 5 % of the pixels are drawn anew: milliseconds of processor time,
            one thread, by models made anew (fresh), a plan that begins anew (cold) and a plan that goes on (warm);
            medians of several rounds, in each of which the three take turns on the same frames
solve_many  models per second, 100 x 100 x 4, ten iterations of TRW-S: in turn, with one and two workers, on Ray;
            no model has been solved before, so that its canonical form is part of the work everywhere; and
            milliseconds of processor time per model, of this process and of the workers (their start left out; of Ray
            only models per second, after a few that its workers have got ready with)

Machines are shared: look at ratios within one run.
"""

from __future__ import annotations

import argparse
import copy
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tightmap as tm

ROUNDS = 5  # of ``prepare``
FEW = 20  # models that a second sequence has less than the first one


def picture(size: int, labels: int, seed: int) -> np.ndarray:
    """(pixels, labels) costs of a noisy picture of squares: neither trivial nor pure noise."""
    squares = np.random.default_rng(0).integers(0, labels, (-(-size // 20),) * 2)
    truth = np.kron(squares, np.ones((20, 20), dtype=int))[:size, :size]
    costs = np.random.default_rng(seed).random((size * size, labels))
    costs[np.arange(size * size), truth.ravel()] -= 0.4
    return costs


def grid(size: int, labels: int, seed: int = 0) -> tm.Model:
    model = tm.Model.grid(size, size, labels)
    model.add_unaries(picture(size, labels, seed))
    model.add_potts(model.edges(), 0.25)
    return model


def best(work: Callable[[], object], times: int) -> float:
    """Seconds of the quickest of several calls."""
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        found.append(time.perf_counter() - begin)
    return min(found)


def overhead(methods: tuple[str, ...]) -> None:
    print("\noverhead of a call, 3 x 3 x 3 Potts, milliseconds")
    model = grid(3, 3)
    for method in methods:
        tm.solve(model, method)
        kept = best(lambda method=method: tm.solve(model, method), 200)

        def anew(method: str = method) -> None:
            model.add_constant(0.0)  # forgets the canonical form
            tm.solve(model, method)

        print(f"  {method:10s} {1e3 * kept:8.3f}   with the canonical form {1e3 * best(anew, 100):8.3f}")

    def chain(method: str) -> tm.Result:
        small = tm.Model([3] * 10)
        small.add_unaries(costs)
        small.add_potts(pairs, 0.3)
        return tm.solve(small, method)

    rng = np.random.default_rng(0)
    costs = rng.random((10, 3))
    pairs = np.unique(np.sort([rng.choice(10, 2, replace=False) for _ in range(15)], axis=1), axis=0)
    for method in methods:
        chain(method)
        seconds = best(lambda method=method: chain(method), 200)
        print(f"  {method:10s} {1e3 * seconds:8.3f}   build and solve, ten variables")


def cuts(size: int, labels: int) -> None:
    """Beside PyMaxflow, turn by turn."""
    try:
        from maxflow.fastmin import aexpansion_grid
    except ImportError:
        return
    costs, table = picture(size, labels, 0), 0.25 * (1.0 - np.eye(labels))

    def ours() -> np.ndarray:
        model = tm.Model.grid(size, size, labels)
        model.add_unaries(costs)
        model.add_potts(model.edges(), 0.25)
        return tm.solve(model, "expansion", threads=1).labels

    def theirs() -> np.ndarray:
        return np.asarray(aexpansion_grid(costs.reshape(size, size, labels).copy(), table)).ravel()

    ours()
    seconds: dict[str, list[float]] = {"tightmap": [], "PyMaxflow": []}
    for _ in range(5):
        for name, work in (("tightmap", ours), ("PyMaxflow", theirs)):
            begin = time.process_time()
            work()
            seconds[name].append(time.process_time() - begin)
    model = grid(size, labels)
    print(f"\nexpansion with building, {size} x {size} x {labels} Potts, milliseconds")
    for name, work in (("tightmap", ours), ("PyMaxflow", theirs)):
        print(f"  {name:10s} {1e3 * min(seconds[name]):8.1f}   energy {model.energy(work()):.6f}")


def frames(size: int, labels: int, count: int) -> list[np.ndarray]:
    """Costs of which each differ from those before in 5 % of the pixels."""
    rng = np.random.default_rng(1)
    out = [picture(size, labels, 0)]
    for k in range(count):
        some = rng.random(size * size) < 0.05
        out.append(np.where(some[:, None], picture(size, labels, 1 + k), out[-1]))
    return out[1:]


def prepared(methods: tuple[str, ...], size: int, labels: int, count: int) -> None:
    print(f"\nprepare, {size} x {size} x {labels} Potts, 5 % of the pixels change, milliseconds per frame")
    print("  method        fresh     cold     warm   fresh : warm      energy warm : fresh")
    sequence = frames(size, labels, count + 2)
    for method in methods:
        model = grid(size, labels)
        tm.solve(model, method)

        def fresh(costs: np.ndarray) -> tm.Result:
            other = tm.Model.grid(size, size, labels)
            other.add_unaries(costs)
            other.add_potts(other.edges(), 0.25)
            return tm.solve(other, method, threads=1)  # noqa: B023  called before the loop goes on

        rounds: list[list[float]] = []
        ratio = 1.0
        for number in range(ROUNDS + 1):
            plan = tm.prepare(model, method, threads=1)
            ways: dict[str, Callable[[np.ndarray], tm.Result]] = {
                "fresh": fresh,
                "cold": lambda costs, plan=plan: plan.solve(unaries=costs, warm=False),
                "warm": lambda costs, plan=plan: plan.solve(unaries=costs),
            }
            energies, spent = {}, []
            for name, way in ways.items():
                for costs in sequence[:2]:
                    way(costs)  # from here on every frame comes from the one before it
                begin = time.process_time()
                energies[name] = [way(costs).energy for costs in sequence[2:]]
                spent.append(1e3 * (time.process_time() - begin) / count)
            if number:  # in the first one kernels are loaded
                rounds.append([*spent, spent[0] / spent[2]])
            ratio = float(np.mean(np.array(energies["warm"]) / np.array(energies["fresh"])))
        *medians, gain = np.median(rounds, axis=0)
        row = "".join(f"{milliseconds:9.1f}" for milliseconds in medians)
        least, most = min(r[3] for r in rounds), max(r[3] for r in rounds)
        print(f"  {method:10s}{row}{gain:8.1f} ({least:.1f} to {most:.1f}){ratio:14.6f}")


def start_ray(cores: int) -> None:
    """Once for all sequences: it takes longer to start than a thousand models to be solved."""
    import ray

    found = {"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}}
    ray.init(num_cpus=cores, include_dashboard=False, log_to_driver=False, runtime_env=found)


def throughput(count: int, size: int, ray: bool) -> None:
    print(f"\nsolve_many, {count} models of {size} x {size} x 4, 10 iterations of trws, models per second")
    models = [grid(size, 4, seed) for seed in range(min(count, 20))]
    places = [{"engine": "serial", "threads": 1}, {"workers": 1, "threads": 1}, {"workers": 2, "threads": 1}]
    if ray:
        places.append({"engine": "ray", "workers": 2, "threads": 1})
    for place in places:

        def seconds_of(number: int, place: dict[str, Any] = place) -> np.ndarray:
            """Of wall time, and of the processor in this process and in its workers, for so many models."""
            sequence = (copy.copy(models[i % len(models)]) for i in range(number))  # without what was derived from them
            begin = np.array([time.perf_counter(), *_processor()])
            for outcome in tm.solve_many(sequence, method="trws", max_iterations=10, **place):
                outcome.get()
            return np.array([time.perf_counter(), *_processor()]) - begin

        name = place.get("engine", "processes") + (f", {place['workers']} workers" if "workers" in place else "")
        if place.get("engine") == "ray":
            start_ray(2)
        few = min(FEW, count // 2)
        if place.get("engine") == "serial":
            seconds_of(few)  # this process loads its kernels once, not in each of the two calls below
        start = seconds_of(few)  # workers start and load their kernels, which takes as long for a thousand models
        if place.get("engine") == "ray":  # whose workers stay, and belong to another process
            print(f"  {name:24s}{count / seconds_of(count)[0]:8.1f}")
            continue
        wall, own, workers = (seconds_of(count) - start) / (count - few)
        print(
            f"  {name:24s}{1.0 / wall:8.1f}   processor: {1e3 * own:6.2f} ms here, {1e3 * workers:6.2f} ms in workers"
        )


def _processor() -> tuple[float, float]:
    """Seconds of the processor that this process and those that it has waited for have taken."""
    own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime, others.ru_utime + others.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--labels", type=int, default=4)
    parser.add_argument("--frames", type=int, default=10)
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--model-size", type=int, default=100)
    parser.add_argument("--ray", action="store_true", help="also on Ray, which has to be installed")
    chosen = parser.parse_args()
    overhead(("trws", "expansion", "bcd", "auto"))
    cuts(chosen.size, chosen.labels)
    prepared(("trws", "expansion"), chosen.size, chosen.labels, chosen.frames)
    throughput(chosen.models, chosen.model_size, chosen.ray)


if __name__ == "__main__":
    main()
