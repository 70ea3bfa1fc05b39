"""Quicker forms of parts of Numba's compiler: the same results, and none of it outside of kernels."""

import gc
import os
import subprocess
import sys

import numba
import pytest
from numba.core import errors, ir
from numba.core.compiler import run_frontend

from tightmap.energy import energies
from tightmap.runtime import compiled as deciding
from tightmap.runtime.compiled import compiled

if deciding._kernel.__name__ != "Compiled":
    pytest.skip("kernels are not compiled by tightmap.runtime.linking", allow_module_level=True)
from tightmap.runtime import hastening

CODE = """
import hashlib, re, sys
from tightmap.runtime import hastening
if sys.argv[1] == "slow":
    hastening._QUICKER.clear()
import numpy as np
from tightmap.runtime.compiled import compiled, lean

@lean
def pick(table, k):
    return min(table[k], table[k + 1]) + table[-1] * 2

@compiled(fastmath={"contract"})
def mixed(table, counts, wide):
    kept = np.zeros(counts.max() + 1)
    for k, c in enumerate(counts):
        if c % 2 == 0 and not wide:
            kept[c] += pick(table, k) / (c + 0.5)
        elif k > 3:
            break
    return kept.sum(), np.argmin(kept), (counts + 1)[0]

print(mixed(np.arange(9.0), np.array([0, 2, 4], dtype=np.int32), False))
result, = mixed.entry.overloads.values()
code = re.sub("array_expr_0x[0-9a-f]+", "", result.library.get_asm_str())  # Numba names these by an address
print(hashlib.sha256(code.encode()).hexdigest())
"""


def test_the_machine_code_is_the_same(tmp_path):
    said = set()
    for how in ("quick", "slow"):
        run = subprocess.run(
            [sys.executable, "-c", CODE, how],
            env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / how), "PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
            check=True,
        )
        said.add(run.stdout)
    assert len(said) == 1 and "(" in said.pop()


def test_the_variables_of_a_statement_are_the_same():
    statements = 0
    for kernel in (energies.labelling_sums, energies._unary_argmin, energies._bound_factors):
        for block in run_frontend(kernel.py_func).blocks.values():
            for statement in block.body:
                found = [v.name for v in statement.list_vars()]
                assert [v.name for v in hastening._variables_of_statement(statement)] == found
                value = getattr(statement, "value", None)
                if isinstance(value, ir.Expr):
                    expected = [v.name for v in value.list_vars()]
                    assert [v.name for v in hastening._variables_of_expression(value)] == expected
                statements += 1
    assert statements > 100


def _in_force():
    return [owner.__dict__[name] is quicker for owner, name, quicker in hastening._QUICKER]


def test_numba_is_itself_again_afterwards(monkeypatch, tmp_path):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))  # compiled whenever the test runs
    seen = []

    @numba.extending.overload(_in_force)
    def overloaded():
        seen.extend([*_in_force(), not gc.isenabled()])  # in the middle of a compilation
        return lambda: 1

    @compiled
    def asks():
        return _in_force()

    assert gc.isenabled() and not any(_in_force())
    assert asks() == 1
    assert seen and all(seen)
    assert gc.isenabled() and not any(_in_force())


def test_numba_is_itself_again_after_an_error():
    @compiled
    def wrong(x):
        return x.no_such_attribute

    gc.disable()
    try:
        with pytest.raises(errors.TypingError):
            wrong(1)
        assert not gc.isenabled(), "whoever had switched it off keeps it so"
    finally:
        gc.enable()
    assert not any(_in_force())
