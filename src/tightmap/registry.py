"""The methods: a literal table from name to solver class.

Classes are named by module and attribute and imported on demand, so that `tightmap --help` and `tightmap methods` need
not compile or import the kernels of sixteen methods.
"""

from __future__ import annotations

import dataclasses
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tightmap.errors import OptionError
from tightmap.runtime.forks import unforked

if TYPE_CHECKING:
    from tightmap.solvers.base import Solver

METHODS: dict[str, str] = {
    "auto": "tightmap.solvers.auto.solver:Auto",
    "bcd": "tightmap.solvers.bcd:BCD",
    "tabu": "tightmap.solvers.search.tabu:Tabu",
    "sa": "tightmap.solvers.search.annealing:SimulatedAnnealing",
    "anneal": "tightmap.solvers.search.forest_annealing:Anneal",
    "lns": "tightmap.solvers.search.lns:LNS",
    "pgd": "tightmap.solvers.relaxed.pgd:PGD",
    "fw": "tightmap.solvers.relaxed.fw:FrankWolfe",
    "cqp": "tightmap.solvers.relaxed.cqp:CQP",
    "admm": "tightmap.solvers.admm.solver:ADMM",
    "trws": "tightmap.solvers.trws.solver:TRWS",
    "trbp": "tightmap.solvers.trbp:TRBP",
    "srmp": "tightmap.solvers.regions.srmp:SRMP",
    "mplp": "tightmap.solvers.regions.mplp:MPLP",
    "mplp-c": "tightmap.solvers.regions.mplp:MPLPC",
    "expansion": "tightmap.solvers.cuts.expansion:Expansion",
    "fastpd": "tightmap.solvers.cuts.fastpd:FastPD",
    "swap": "tightmap.solvers.cuts.swap:Swap",
    "qpbo": "tightmap.solvers.cuts.qpbo:QPBOSolver",
    "fusion": "tightmap.solvers.cuts.fusion:Fusion",
    "exact": "tightmap.solvers.exact.solver:Exact",
}


def solver_class(name: str) -> type[Solver]:
    """The class of a method, or an OptionError that lists the methods there are."""
    if name not in METHODS:
        raise OptionError(f"unknown method {name!r}; methods are {', '.join(METHODS)}")
    module, attribute = METHODS[name].split(":")
    with unforked:
        cls: type[Solver] = getattr(import_module(module), attribute)
    return cls


def make_solver(name: str, options: dict[str, Any]) -> Solver:
    """A solver with options; unknown names and wrong types are OptionErrors that say what is possible."""
    cls = solver_class(name)
    fields = {f.name: f for f in dataclasses.fields(cls)}
    for key, value in options.items():
        if key not in fields:
            known = ", ".join(fields) or "none"
            raise OptionError(f"method {name!r} has no option {key!r}; its options are {known}")
        options[key] = _checked(name, fields[key], value)
    try:
        return cls(**options)
    except (TypeError, ValueError) as error:
        if isinstance(error, OptionError):
            raise
        raise OptionError(f"method {name!r}: {error}") from None


def _checked(method: str, field: dataclasses.Field, value: Any) -> Any:
    """The value as the type of the option's default: text from a command line is parsed, nothing else is bent."""
    kind = str(field.type).replace(" ", "")
    kinds = kind.split("|")
    text = isinstance(value, str) and "str" not in kinds
    if text:
        if "None" in kinds and value.lower() in ("none", "null", ""):
            return None
        if "bool" in kinds and value.lower() in ("true", "false", "yes", "no", "1", "0", "on", "off"):
            return value.lower() in ("true", "yes", "1", "on")
        for name, parse in (("int", int), ("float", float)):
            if name in kinds:
                try:
                    return parse(value)
                except ValueError:
                    continue
    elif value is None and "None" in kinds:
        return None
    elif isinstance(value, bool):
        if "bool" in kinds:
            return value
    elif isinstance(value, int) or hasattr(value, "__index__"):
        if "int" in kinds:
            return int(value)
        if "float" in kinds:
            return float(value)
    elif isinstance(value, float):
        if "float" in kinds:
            return value
    elif isinstance(value, str) and "str" in kinds:
        return value
    elif not any(k in ("int", "float", "bool", "str") for k in kinds):
        return value  # tuples and arrays are checked by the solver itself
    raise OptionError(f"method {method!r}: option {field.name!r} takes {kind.replace('|', ' or ')}, got {value!r}")


def methods() -> list[dict[str, Any]]:
    """Every method with what it needs and gives, for `tightmap methods` and for programs."""
    rows = []
    for name in METHODS:
        cls = solver_class(name)
        rows.append(
            {
                "name": name,
                "summary": cls.summary,
                "max_order": cls.max_order,
                "needs": cls.needs,
                "gives_bound": cls.gives_bound,
                "options": {f.name: _default(f) for f in dataclasses.fields(cls)},
            }
        )
    return rows


def _default(field: dataclasses.Field) -> Any:
    return None if field.default is dataclasses.MISSING else field.default
