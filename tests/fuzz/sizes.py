"""Small models treated as large ones: brute force needs the first, much of the library begins with the second.

Each of these moves thresholds of the library, which are plain numbers in its modules.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module

Threshold = tuple[str, str, int]  # module, name, value

SIZES: dict[str, list[Threshold]] = {
    # images of hundreds of thousands of pixels have no list of their edges
    "no list": [("tightmap.canonical.build", "IMPLICIT", 0)],
    # and those of millions of labels have costs in single precision, duals in 16 bits
    "few bits": [
        ("tightmap.model.model", "WORTH", 0),
        ("tightmap.graph.pixel_costs", "PART", 7),
        ("tightmap.solvers.cuts.expansion", "WORTH", 0),
    ],
    # and expansion moves have one start
    "one start": [("tightmap.solvers.cuts.expansion", "RESTART_SIZE", 0)],
    # auto solves nothing at once, so that methods take turns
    "turns": [("tightmap.moves.at_once", "VARIABLES", -1)],
    # what is left of a small model after presolve is worth a run of its own
    "presolve": [
        ("tightmap.moves.at_once", "VARIABLES", -1),
        ("tightmap.solvers.auto.presolve", "FEW", 0),
        ("tightmap.solvers.auto.presolve", "WORTH", 2),
        ("tightmap.solvers.auto.presolve", "DEGREE", 0),
    ],
    # and the exact search has no moment before all others, so that several have their turns at once
    "beside": [("tightmap.moves.at_once", "VARIABLES", -1), ("tightmap.solvers.auto.run", "MOMENT", -1)],
    # trws lays out the tables of graphs of a few edges, too
    "streams": [("tightmap.solvers.trws.streams", "FEWEST", 1)],
    # labels are fixed after every iteration, whatever is left of them
    "fixing": [("tightmap.solvers.combilp.solver", "CHECKS", 1), ("tightmap.solvers.combilp.fixing", "GONE", 0)],
    # the exact search does not begin with a look at the tree, and looks for cores beside it
    "slow tree": [
        ("tightmap.solvers.exact.component", "GLIMPSE", 0),
        ("tightmap.solvers.exact.solver", "PROBE", 0),
        ("tightmap.solvers.exact.solver", "PROBE_BESIDE_HARD", 0),
    ],
}
IMAGES = ("no list", "few bits")  # those that change what the canonical form of an image is
_USUAL = {(module, name): getattr(import_module(module), name) for group in SIZES.values() for module, name, _ in group}


def treat_as(sizes: Collection[str]) -> None:
    """From now on models are treated so, until the next call."""
    for (module, name), value in _USUAL.items():
        setattr(import_module(module), name, value)
    for size in sizes:
        for module, name, value in SIZES[size]:
            setattr(import_module(module), name, value)


def lines(sizes: Collection[str]) -> list[str]:
    """The same as lines of Python."""
    moved = [threshold for size in sizes for threshold in SIZES[size]]
    out = [f"import {module}" for module in dict.fromkeys(module for module, _, _ in moved)]
    return out + [f"{module}.{name} = {value}" for module, name, value in moved]
