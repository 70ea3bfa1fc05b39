"""Inside of a larger program: logging instead of prints, results as JSON and without state, limits on everything."""

from __future__ import annotations

import ast
import json
import logging
import math
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tightmap as tm
from problems import grid_model

PACKAGE = Path(tm.__file__).parent


@pytest.fixture(scope="module")
def model():
    return grid_model(np.random.default_rng(0), 5, 5, 3)


def infeasible():
    model = tm.Model([2, 2])
    model.add_factors([[0, 1]], [[np.inf, np.inf], [np.inf, np.inf]])
    return model


# ------------------------------------------------------------------ results


def through_json(result):
    return tm.Result.from_dict(json.loads(result.to_json()))


@pytest.mark.parametrize("method", ["bcd", "trws", "admm"])
def test_results_survive_json(model, method):
    result = tm.solve(model, method, max_iterations=20, trace=True)
    twin = through_json(result)
    assert twin == result and twin.labels.dtype == np.int64
    assert (twin.trace, twin.elapsed, twin.note, twin.gap) == (result.trace, result.elapsed, result.note, result.gap)
    assert twin.summary() == result.summary() and twin.state is None
    assert model.energy(twin.labels) == twin.energy


def test_numbers_that_json_does_not_have(model):
    result = tm.solve(infeasible(), "bcd", trace=True)
    assert result.status is tm.Status.INFEASIBLE and through_json(result) == result
    assert result.to_dict()["energy"] is None and result.to_dict()["lower_bound"] is None
    result = tm.solve(model, "bcd")
    assert result.lower_bound == -math.inf and through_json(result) == result
    odd = replace(
        result,
        options={"a": math.inf, "b": (1, -math.inf), "c": np.arange(3), "d": np.float32(0.5), "e": None, "f": {2, 3}},
        trace=[{"energy": math.inf, "residual": math.nan}],
    )
    twin = through_json(odd)
    assert twin.options == {"a": math.inf, "b": [1, -math.inf], "c": [0, 1, 2], "d": 0.5, "e": None, "f": "{2, 3}"}
    assert twin.trace[0]["energy"] == math.inf and math.isnan(twin.trace[0]["residual"])


def test_dicts_that_are_no_results(model):
    good = tm.solve(model, "bcd").to_dict()
    assert tm.Result.from_dict(good | {"model": {"path": "x"}, "seed": 3}).energy == good["energy"]
    for wrong, word in (
        ({"status": "GREAT"}, "GREAT"),
        ({"labels": [0.5]}, "labels"),
        ({"labels": [[0]]}, "labels"),
        ({"energy": "low"}, "low"),
        ({"options": 3}, "Result.from_dict"),
    ):
        with pytest.raises(tm.ModelError, match=word):
            tm.Result.from_dict(good | wrong)
    del good["labels"]
    with pytest.raises(tm.ModelError, match="labels"):
        tm.Result.from_dict(good)


def test_results_without_state(model):
    kept, light = (tm.solve(model, "trws", max_iterations=5, keep_state=keep) for keep in (True, False))
    assert kept == light and kept.state is not None and light.state is None
    assert tm.solve(model, "trws", max_iterations=5, init=light).energy <= light.energy  # its labels are there


def test_what_a_callback_gets_has_a_public_name(model):
    seen = []
    tm.solve(model, "bcd", callback=seen.append)
    assert seen and all(isinstance(info, tm.Info) for info in seen)


# ------------------------------------------------------------------ logging


def test_runs_are_logged_for_those_who_ask(model, caplog):
    with caplog.at_level(logging.INFO, "tightmap"):
        tm.solve(model, "bcd")
    assert not caplog.records
    with caplog.at_level(logging.DEBUG, "tightmap"):
        result = tm.solve(model, "bcd")
    (record,) = caplog.records
    assert record.name == "tightmap" and "25 variables" in record.message and f"{result.energy:.9g}" in record.message


def test_the_library_prints_nothing():
    """Only the commands and the demo, which is one, talk to a terminal."""
    for path in PACKAGE.rglob("*.py"):
        if path.relative_to(PACKAGE).parts[0] in ("cli", "demo.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                assert getattr(node.func, "id", "") != "print", f"{path}:{node.lineno}"


COMPILES = """
import logging, sys, time
import numpy as np
import tightmap as tm
{setup}
begin = time.perf_counter()
model = tm.Model.grid(6, 6, 3)
model.add_unaries(np.random.default_rng(0).random((36, 3)))
model.add_potts(model.edges(), 0.3)
result = tm.solve(model, {method!r}, wall_limit={limit})
print(time.perf_counter() - begin, result.status.name, result.energy, model.energy(result.labels), result.iterations)
again = tm.solve(model, "bcd", init=result.labels, wall_limit={limit}, seed=1)
print(again.energy)
"""


def without_cache(tmp_path, **values):
    """A process that finds no compiled kernels; what it writes to standard output and standard error."""
    run = subprocess.run(
        [sys.executable, "-c", COMPILES.format(**({"setup": "", "method": "auto"} | values))],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        cwd=tmp_path,
        env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    return run.stdout.split(), run.stderr


def test_compilation_is_logged_and_bounded_by_the_wall_limit(tmp_path):
    """From an empty cache every method would compile for many seconds; a second of wall time is about a second."""
    setup = "logging.basicConfig(level=logging.INFO, format='%(name)s %(levelname)s %(message)s')"
    out, errors = without_cache(tmp_path, setup=setup, limit=1.0)
    assert "tightmap INFO compiling kernels, first run only" in errors
    seconds, status, energy, same, iterations, again = out
    assert status == "TIME_LIMIT" and energy == same and iterations == "0"
    assert float(seconds) < 20.0
    assert float(again) <= float(energy)


def test_a_limit_of_nothing_still_gives_labels(tmp_path):
    out, errors = without_cache(tmp_path, limit=0.0)
    assert errors == ""  # nobody is looking: nothing is said
    assert out[1] == "TIME_LIMIT" and out[2] == out[3] and float(out[0]) < 20.0


def test_a_wall_limit_does_not_disturb_what_is_compiled(model):
    plain = tm.solve(model, "trws", max_iterations=5)
    assert tm.solve(model, "trws", max_iterations=5, wall_limit=600.0) == plain
    late = tm.solve(grid_model(np.random.default_rng(1), 60, 60, 6), "admm", wall_limit=0.5)
    assert late.status in (tm.Status.TIME_LIMIT, tm.Status.CONVERGED, tm.Status.OPTIMAL) and late.elapsed < 20.0
    with pytest.raises(tm.OptionError, match="wall_limit"):
        tm.solve(model, wall_limit=-1)


def test_a_wall_limit_counts_reading_too(model, tmp_path, monkeypatch):
    """Of the command line and of workers: what reading took is not there for solving any more."""
    from tightmap import io as files
    from tightmap.cli import main as cli
    from tightmap.driver import solve
    from tightmap.many import tasks

    tm.write(model, tmp_path / "m.npz")
    read, limits = files.read, []

    def slow(path):
        time.sleep(0.3)
        return read(path)

    def watched(*arguments, wall_limit=None, **options):
        limits.append(wall_limit)
        return solve(*arguments, wall_limit=wall_limit, **options)

    monkeypatch.setattr(files, "read", slow)
    monkeypatch.setattr(tasks, "read", slow)
    monkeypatch.setattr(tasks, "solve", watched)
    monkeypatch.setattr("tightmap.driver.solve", watched)
    command = ["solve", str(tmp_path / "m.npz"), "--method", "bcd", "--quiet", "--wall-limit"]
    assert cli.run([*command, "600"]) == 0
    (outcome,) = tm.solve_many([tmp_path / "m.npz"], engine="serial", method="bcd", wall_limit=600.0)
    assert outcome.result is not None
    assert len(limits) == 2 and all(500.0 < limit < 599.8 for limit in limits)
    assert cli.run([*command, "-1"]) == 2
