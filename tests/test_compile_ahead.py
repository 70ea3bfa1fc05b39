"""compile_ahead: what a wheel ships is what methods need, on models that it was not compiled with."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tightmap.registry import METHODS
from tightmap.runtime.compiled import INTERPRETED, _wanted_plain

# A kernel that this process has not used yet is asked of ``_Entry.compile``, whether it is on disk or not
WATCH = """
import json, sys
import tightmap as tm
from tightmap.compile_ahead import compile_method
from tightmap.runtime import linking

asked = []
plain = linking._Entry.compile

def compile(self, signature):
    asked.append(f"{self.py_func.__module__}.{self.py_func.__qualname__}")
    return plain(self, signature)

linking._Entry.compile = compile
methods = json.loads(sys.argv[1])
for method in methods:
    compile_method(method)
ahead = len(asked)
"""

AWKWARD = """
import numpy as np
from tightmap.testing.conformance import awkward_models

models = {name: model for name, (model, _) in awkward_models().items()}
rng = np.random.default_rng(0)
for labels in (2, 12):  # tables enough to be laid out for messages, with frustrated cycles and cores of all lengths
    edges = np.unique(np.sort(rng.integers(0, 120, (300, 2)), axis=1), axis=0)
    edges = edges[edges[:, 0] < edges[:, 1]]
    models[f"sparse {labels}"] = model = tm.Model([labels] * 120)
    model.add_unaries(rng.random((120, labels)))
    model.add_factors(edges, rng.random((len(edges), labels, labels)))
models["parts of a sparse graph"] = model = tm.Model([40] * 40)
model.add_potts(edges[edges[:, 1] < 40], rng.normal(size=(edges[:, 1] < 40).sum()))
models["parts of a tree and more"] = model = tm.Model([120] * 120)
model.add_potts(edges, rng.normal(size=len(edges)))

late = {}
for name, model in models.items():
    for method in methods:
        before = len(asked)
        try:
            tm.solve(model, method, max_iterations=60, time_limit=0.5)
        except tm.ModelError:  # not for this method
            continue
        late.setdefault(f"{method} on {name}", []).extend(asked[before:])
print(json.dumps([ahead, {run: kernels for run, kernels in late.items() if kernels}]))
"""


def _asked(program: str, methods: list[str]):
    """What this program prints after kernels of these methods were compiled ahead in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", WATCH + program, json.dumps(methods)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"NUMBA_NUM_THREADS": "1"},
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.skipif(INTERPRETED or _wanted_plain, reason="kernels are compiled by another way, or not at all")
def test_no_method_needs_a_kernel_that_was_not_compiled_ahead():
    ahead, late = _asked(AWKWARD, list(METHODS))
    assert ahead > 200
    assert late == {}


LARGE = """
import numpy as np
from tightmap.model import model as models
from tightmap.solvers.cuts import expansion

models.WORTH = expansion.WORTH = expansion.RESTART_SIZE = 0  # as if these were large
rng = np.random.default_rng(0)
for precision in ("single", "double"):
    model = tm.Model.grid(20, 30, 5)
    model.add_unaries(rng.integers(0, 50, (20, 30, 5)))
    model.add_potts(model.edges(), rng.integers(1, 9, len(model.edges())))
    assert model.single
    tm.solve(model, "trws", precision=precision, max_iterations=40)
    tm.solve(model, "expansion")
    assert model.single and not model.graph().listed
print(json.dumps(asked[ahead:]))
"""


@pytest.mark.skipif(INTERPRETED or _wanted_plain, reason="kernels are compiled by another way, or not at all")
def test_costs_in_single_precision_need_no_kernels_of_their_own():
    assert _asked(LARGE, ["trws", "expansion"]) == []
