"""What one run is: build the model, warm up, measure, describe.

The kernels are compiled or loaded by one iteration that does not count, and then the measured run starts.  A run in
which a kernel had still to be compiled is repeated.
"""

from __future__ import annotations

import base64
import io
import platform
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tightmap.bench.instances import Problem, find, grid_drawing
from tightmap.bench.records import Row, Run
from tightmap.runtime.clock import compilation

TRACE_POINTS = 150
WARM_UP_LIMIT = 60.0
COMPILED = 0.1  # seconds of compilation from which on a run does not count
REPEATING = 2.0  # seconds in which a tiny model is built and solved again and again
LARGEST_PICTURE = 640  # pixels per side


def build(run: Run) -> Problem:
    """The model of a run: a built-in instance, a file, or a builder with arguments."""
    source = run.source
    if not source:
        return find(run.family, run.instance).build()
    if "path" in source:
        from tightmap.io import read

        model = read(source["path"], evidence=source.get("evidence"), **source.get("arguments", {}))
    else:
        from tightmap import problems

        model = getattr(problems, source["problem"])(**source.get("arguments", {}))
        if isinstance(model, tuple):
            model = model[0]
    return Problem(model, grid_drawing(model))


def thin(trace: list[dict[str, float]], points: int = TRACE_POINTS) -> list[list[float]]:
    """[elapsed, energy, bound] where something changed, at most ``points`` rows, evenly over the logarithm of time."""
    rows: list[list[float]] = []
    for row in trace:
        point = [float(row["elapsed"]), float(row["energy"]), float(row["lower_bound"])]
        if not rows or point[1:] != rows[-1][1:]:
            rows.append(point)
    if len(rows) <= points:
        return rows
    times = np.log(np.maximum([r[0] for r in rows], 1e-6))
    wanted = np.linspace(times[0], times[-1], points)
    chosen = np.unique(np.concatenate([np.searchsorted(times, wanted, side="right") - 1, [0, len(rows) - 1]]))
    return [rows[i] for i in chosen]


def picture(problem: Problem, labels: Any) -> str | None:
    """A PNG of the labelling, base64, or None where there is nothing to draw."""
    if problem.draw is None:
        return None
    from PIL import Image

    array = np.asarray(problem.draw(labels))
    step = -(-max(array.shape[:2]) // LARGEST_PICTURE)
    image = Image.fromarray(np.ascontiguousarray(array[::step, ::step]))
    if len(np.unique(array.reshape(-1, array.shape[-1]), axis=0)) <= 256:
        image = image.quantize(256)
    stream = io.BytesIO()
    image.save(stream, "PNG", optimize=True)
    return base64.b64encode(stream.getvalue()).decode()


def peak_memory() -> float | None:
    """The largest resident size of this process so far, in MiB."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def repeated(run: Run, labels: int, started: Callable[[], object] | None) -> Row:
    """Building and solving a tiny model together, from nothing each time: the best of many."""
    from tightmap.bench.tiny import once

    again = partial(once, run.method, labels)
    if not run.method.startswith("peer:"):
        again = partial(again, seed=run.seed, threads=run.threads, **run.options)
    again()
    if started is not None:
        started()
    best = again()
    until = time.perf_counter() + REPEATING
    while time.perf_counter() < until:
        best = min(best, again(), key=lambda figures: figures[3])
    energy, bound, status, seconds = best
    return {
        "energy": energy,
        "lower_bound": bound,
        "status": status,
        "feasible": bool(np.isfinite(energy)),
        "elapsed": seconds,
        "peak_memory_mb": peak_memory(),
    }


def perform(run: Run, started: Callable[[], object] | None = None) -> Row:
    """Carry out a run and describe it; ``started`` is called when the measured part begins."""
    from tightmap import __version__
    from tightmap.bench.peers import PEERS, solve_with

    begin = time.perf_counter()
    problem = build(run)
    model = problem.model
    built = time.perf_counter() - begin
    row: Row = {
        "variables": model.num_variables,
        "factors": model.num_factors,
        "max_labels": model.max_labels,
        "max_order": model.max_order,
        "build_seconds": built,
        "machine": f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}",
        "version": __version__,
    }
    tiny = 0 if run.source else find(run.family, run.instance).repeat
    if tiny:
        return row | repeated(run, tiny, started)
    if run.method in PEERS:
        if started is not None:
            started()
        found = solve_with(run.method, model, run.time_limit)
        labels = found.pop("labels")
        row |= found
        if labels is not None:
            row["energy"] = model.energy(labels)
            row["feasible"] = bool(np.isfinite(row["energy"]))
            row["picture"] = picture(problem, labels)
        row.setdefault("peak_memory_mb", peak_memory())
        return row
    from tightmap.driver import solve

    begin = time.perf_counter()
    common: dict[str, Any] = {"seed": run.seed, "threads": run.threads, **run.options}
    solve(model, run.method, max_iterations=1, time_limit=WARM_UP_LIMIT, **common)
    row["warm_up_seconds"] = time.perf_counter() - begin
    for _ in range(3):
        model.add_constant(0.0)  # forget the canonical form: making it is part of the measured run
        if started is not None:
            started()
        with compilation(started) as seconds:
            result = solve(model, run.method, time_limit=run.time_limit, trace=True, **common)
        if sum(seconds) < COMPILED:
            break
    row |= {
        "compile_seconds": sum(seconds),
        "status": result.status.name,
        "energy": result.energy,
        "lower_bound": result.lower_bound,
        "gap": result.gap,
        "feasible": result.feasible,
        "iterations": result.iterations,
        "elapsed": result.elapsed,
        "note": result.note,
        "trace": thin(result.trace),
        "peak_memory_mb": peak_memory(),
        "picture": picture(problem, result.labels),
    }
    return row
