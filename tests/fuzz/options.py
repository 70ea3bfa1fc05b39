"""Valid values of every option of every method, awkward ones included."""

from __future__ import annotations

from typing import Any

import numpy as np

SEARCH = {
    "tolerance": (1e-4, 0.0, 1.0),
    "iterations": (1000, 1, 30),
    "hard_cost": (1.0, 0.1, 100.0),
}
STARTS = {"restarts": (4, 0, 1), "first": ("uniform", "unary"), **SEARCH}
LINE_SEARCH = ("exact", "armijo", "nonmonotone", "diminishing")
ORDERS = ("index", "greedy", "rcm")
DUAL = {"rounding": (5, 1), "polish": (True, False), "tolerance": (1e-8, 0.0, 1e-2)}
MOVES = {
    "order": ("auto", "descending", "ascending", "random"),
    "largest": (True, False),
    "nonmetric": ("auto", "truncate", "qpbo"),
    "restart": (None, True, False),
}

HOT = 1e3  # temperatures above this are no search but a walk
OPTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "auto": {},
    "bcd": {
        "restarts": (None, 0, 1, 3),
        "order": ("index", "random"),
        "blocks": ("nodes", "rows", "columns", "lines", "forests"),
        "incremental": (None, True, False),
    },
    "tabu": {
        "patience": (0, 1, 100),
        "rounds": (60, 0, 2),
        "tenure": (0, 1, 50),
        "strength": (0.15, 1e-3, 1.0),
        "spins": (True, False),
    },
    "annealing": {"cycles": (24, 1, 2), "sweeps": (50, 1), "temperature": (1.0, 1e-6, 1e6)},
    "chains": {"cycles": (10, 1, 2), "sweeps": (20, 1), "temperature": (1.0, 1e-6, 1e6)},
    "forest-annealing": {"cycles": (12, 1, 2), "sweeps": (0, 1, 5), "temperature": (2.0, 1e-6, 1e6)},
    "lns": {"cycles": (10, 1, 2), "table": (16384, 4, 64)},
    "pgd": {"line_search": LINE_SEARCH, "step_rule": ("spectral", "fixed"), **STARTS},
    "fw": {"line_search": LINE_SEARCH, "steps": ("plain", "pairwise"), **STARTS},
    "cqp": {"line_search": LINE_SEARCH, "steps": ("projected", "pairwise", "plain"), **SEARCH},
    "admm": {
        # runs on worker processes start too slowly for this; test_partition.py has them
        "workers": (None,),
        "engine": ("processes",),
        "checkpoint": (None,),
        "tile": (256,),
        "preset": ("default", "fast", "quality", "paper"),
        "decomposition": ("cyclic", "star", "symmetric"),
        "symmetrize": (None, True, False),
        "sets": ("first_simplex", "all_simplex"),
        "rho0": (None, 1e-3, 1.0, 100.0),
        "growth": (None, 1.0, 1.5),
        "overrelax": (None, 0.5, 1.9),
        "unary_split": (False, True),
        "cache": (True, False),
        "restarts": (None, 1, 2),
        "multiscale": (True, False),
        "polish": (True, False),
        "precision": ("single", "double"),
        "tolerance": (1e-5, 0.0, 1e-2),
    },
    "trws": {
        "order": ORDERS,
        "rounding": (None, 1, 0, 3),
        "polish": (True, False),
        "precision": ("auto", "single", "double"),
        "tolerance": (1e-9, 0.0, 1e-2),
    },
    "trbp": {"damping": (0.5, 0.0, 0.99), "sweeps": (200, 1), "tolerance": (1e-5, 0.0, 1.0)},
    "srmp": {
        "edges": ("full", "minimal"),
        "clusters": ("none", "squares", "pairs", "triplets", "cycles", "singletons"),
        "order": ORDERS,
        **DUAL,
    },
    "mplp": DUAL,
    "mplp-c": {
        "clusters": ("all", "triplets", "cycles", "singletons"),
        "updates": ("mplp", "srmp"),
        "first": (1000, 1, 10),
        "inner": (20, 1),
        "per_round": (0, 1, 5),
        **DUAL,
    },
    "ad3": {
        "eta": (0.1, 1e-3, 10.0),
        "adaptive": (True, False),
        "relaxation": (1.0, 0.5, 1.9),
        "absorb": (True, False),
        "exact": (False, True),
        "tolerance": (1e-7, 0.0, 1e-2),
    },
    "subgradient": {
        "steps": ("polyak", "diminishing"),
        "decomposition": ("auto", "lines", "forests", "chains"),
        "sweeps": (0, 1, 5),
    },
    "bundle": {
        "variant": ("bcfw", "proximal"),
        "decomposition": ("auto", "lines", "forests", "chains"),
        "sweeps": (10, 0, 1),
        "planes": (50, 3, 5),
        "passes": (10, 1, 2),
        "tolerance": (1e-9, 0.0, 1e-2),
    },
    "expansion": MOVES,
    "fastpd": MOVES,
    "swap": {},
    "sdp": {"triangles": (300, 0), "exact": (300, 0), "roundings": (10, 0, 1)},
    "qpbo": {"improve": (3, 0, 1), "reduction": ("fix", "hocr")},
    "fusion": {"reduction": ("fix", "hocr"), "shifts": (True, False), "random": (0, 1, 3), "settle": (False, True)},
    "exact": {"degree": (2, 0, 1, 5), "elimination": (1 << 28, 0, 16), "cores": (True, False)},
    "combilp": {"patience": (4, 0, 1), "cores": (True, False), "fixing": (True, False)},
    "multicut": {"shakes": (100_000, 0, 50), "nodes": (1000, 0, 3)},
    "milp": {},
    "cpsat": {"encoding": ("clauses", "tables")},
    "toulbar2": {"vac": (0, 1, 3)},
}


def random_options(rng: np.random.Generator, method: str) -> dict[str, Any]:
    """Mostly none; else some of the method's options at random values."""
    choices = OPTIONS.get(method, {})
    if not choices or rng.random() < 0.4:
        return {}
    share = rng.choice([0.2, 0.5, 1.0])
    chosen = {name: values[int(rng.integers(len(values)))] for name, values in choices.items() if rng.random() < share}
    if chosen.get("temperature", 0.0) > HOT:
        # every change is accepted, and a change of a wide variable is dear: all cycles may take minutes
        chosen["cycles"] = 2
    return chosen
