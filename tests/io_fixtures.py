"""Fixture G (three variables, a unary, a table on (0, 2), Potts on (0, 1)) in every format, and its twelve energies."""

from __future__ import annotations

import itertools
import math

import h5py
import numpy as np

import tightmap as tm

TABLE = [[0, 1, 2], [3, 4, 5]]
CARDS = (2, 2, 3)

LG = """MARKOV
3
2 2 3
3
1 0
2 0 2
2 0 1
2   -1 -4
6   0 -1 -2  -3 -4 -5
4   0 -7  -7 0
"""
COST = LG.replace("-", "")
UAI = "MARKOV 3  2 2 3  3  1 0  2 0 2  2 0 1\n2 {} 6 {} 4 {}".format(
    *(" ".join(repr(math.exp(-v)) for v in vs) for vs in ([1, 4], [0, 1, 2, 3, 4, 5], [0, 7, 7, 0]))
)
WCSP = """G 3 3 3 1000
2 2 3
1 0 0 2
0 1
1 4
2 0 2 0 5
0 1 1
0 2 2
1 0 3
1 1 4
1 2 5
2 0 1 7 2
0 0 0
1 1 0
"""
CFN = """{"problem": {"name": "G", "mustbe": "<1000.0"},
 "variables": {"x0": 2, "x1": 2, "x2": 3},
 "functions": {
   "f0": {"scope": ["x0"], "costs": [1, 4]},
   "f1": {"scope": ["x0", "x2"], "costs": [0, 1, 2, 3, 4, 5]},
   "f2": {"scope": ["x0", "x1"], "defaultcost": 7, "costs": [0, 0, 0, 1, 1, 0]}}}
"""
TERSE_CFN = """{ {G <1000.0} { x0 [a b] 2 z 3 }
  { [[x0] [1 4]] f1 [[0 z] [0 1 2 3 4 5]] // a comment
    [[0 1] 7 [a v0 0 b v1 0]], } }"""
DD = "c a comment\np 2 2 3 1\na 0 0 0 -1\na 1 0 1 -2\na 2 1 1 -3\ne 0 2 -1\n"


def model() -> tm.Model:
    m = tm.Model(np.array(CARDS))
    m.add_unaries([[1, 4]], nodes=[0])
    m.add_factors([[0, 2]], np.array(TABLE, dtype=float))
    m.add_potts([[0, 1]], [7.0])
    return m


def labellings(m: tm.Model):
    return itertools.product(*(range(int(c)) for c in m.cardinalities))


def energies(m: tm.Model) -> np.ndarray:
    return np.array([m.energy(np.array(x, dtype=np.int64)) for x in labellings(m)])


ENERGIES = np.array(
    [[1, 4][a] + TABLE[a][c] + 7 * (a != b) for a, b, c in itertools.product(*map(range, CARDS))], float
)


def opengm(path, groups, cards, factors, header=None, value_type=(1,), group="gm"):
    """A hand-made OpenGM file: groups = {id: (count, indices, values)}, factors a flat list of records."""
    number = 0
    at = 0
    while at < len(factors):
        at += 3 + factors[at + 2]
        number += 1
    if header is None:
        header = [2, 0, len(cards), number, len(groups)]
        for kind, (count, _, _) in groups.items():
            header += [kind, count]
        header += list(value_type)
    with h5py.File(path, "w") as f:
        g = f.create_group(group)
        g["header"] = np.array(header, dtype=np.uint64)
        g["numbers-of-states"] = np.array(cards, dtype=np.uint64)
        for kind, (_, indices, values) in groups.items():
            g[f"function-id-{kind}/indices"] = np.array(indices, dtype=np.uint64)
            g[f"function-id-{kind}/values"] = np.array(values, dtype=np.float64)
        g["factors"] = np.array(factors, dtype=np.uint64)


G_FUNCTIONS = {16000: (2, [1, 2, 2, 2, 3], [1, 4, 0, 3, 1, 4, 2, 5]), 16006: (1, [2, 2], [0, 7])}
G_FACTORS = [0, 0, 1, 0, 1, 0, 2, 0, 2, 0, 1, 2, 0, 1]
