"""The methods: name -> solver class, those of the package and those from outside.

Our own are a literal table of modules and attributes, imported on demand, so that `tightmap --help` and `tightmap
methods` need not load the kernels of twenty methods.  Others come in three ways:

* ``tightmap.register(MySolver)`` makes a class known by its name in this process and in the worker processes of
  ``tightmap bench`` that it starts (a class in a module that they can import);
* a package that declares the entry point group ``tightmap.methods`` (name = "module:Class") needs no call at all;
* ``tightmap.solve(model, method=MySolver(...))`` takes an instance, known or not.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from functools import cache
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

from tightmap.errors import OptionError
from tightmap.runtime.forks import unforked

if TYPE_CHECKING:
    from tightmap.solvers.base import Solver

METHODS: dict[str, str] = {
    "auto": "tightmap.solvers.auto.solver:Auto",
    "bcd": "tightmap.solvers.bcd:BCD",
    "tabu": "tightmap.solvers.search.tabu:Tabu",
    "annealing": "tightmap.solvers.search.annealing:Annealing",
    "chains": "tightmap.solvers.search.chains:Chains",
    "forest-annealing": "tightmap.solvers.search.forest_annealing:ForestAnnealing",
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
    "ad3": "tightmap.solvers.decomposition.ad3:AD3",
    "subgradient": "tightmap.solvers.decomposition.subgradient:Subgradient",
    "bundle": "tightmap.solvers.decomposition.bundle:Bundle",
    "expansion": "tightmap.solvers.cuts.expansion:Expansion",
    "fastpd": "tightmap.solvers.cuts.fastpd:FastPD",
    "swap": "tightmap.solvers.cuts.swap:Swap",
    "qpbo": "tightmap.solvers.cuts.qpbo:QPBOSolver",
    "fusion": "tightmap.solvers.cuts.fusion:Fusion",
    "sdp": "tightmap.solvers.sdp.solver:SDP",
    "exact": "tightmap.solvers.exact.solver:Exact",
    "multicut": "tightmap.solvers.multicut.solver:Multicut",
    "combilp": "tightmap.solvers.combilp.solver:CombiLP",
}

# Methods that another program carries out, which is installed by itself: pip install "tightmap[NAME]".  A table of
# their own, so that what goes through all methods decides what to do where one is missing.
ENGINES: dict[str, str] = {
    "milp": "tightmap.solvers.engines.milp:MILP",
    "cpsat": "tightmap.solvers.engines.cpsat:CPSAT",
    "toulbar2": "tightmap.solvers.engines.toulbar2:Toulbar2",
}

ALIASES = {"sa": "annealing", "anneal": "forest-annealing"}  # earlier names
GROUP = "tightmap.methods"
SHORT = ("name", "summary", "max_order", "needs", "gives_bound", "installed", "capabilities", "options")

_registered: dict[str, type[Solver]] = {}


def register(solver: type[Solver], name: str | None = None) -> type[Solver]:
    """Make a method known by its name (or another one); returns the class, so that it can be used as a decorator."""
    from tightmap.solvers.base import Solver

    if not (inspect.isclass(solver) and issubclass(solver, Solver) and dataclasses.is_dataclass(solver)):
        raise OptionError(
            f"register: expected a dataclass that derives from tightmap.solvers.base.Solver, got {solver!r}"
        )
    if inspect.isabstract(solver):
        missing = ", ".join(sorted(solver.__abstractmethods__))
        raise OptionError(f"register: {solver.__name__} does not define {missing}")
    own = name or getattr(solver, "name", None)
    if not isinstance(own, str) or not own or ":" in own or not isinstance(getattr(solver, "summary", None), str):
        raise OptionError(
            f"register: {solver.__name__} needs a name (no colon in it) and a summary, both class variables"
        )
    if own in METHODS or own in ENGINES or own in ALIASES:
        raise OptionError(f"register: {own!r} is a method of tightmap itself; choose another name")
    _registered[own] = solver
    return solver


@cache
def _entry_points() -> dict[str, metadata.EntryPoint]:
    return {point.name: point for point in metadata.entry_points(group=GROUP)}


def method_names() -> list[str]:
    """All methods known by name: our own, registered ones, and those that installed packages bring."""
    return list(dict.fromkeys([*METHODS, *ENGINES, *_registered, *(n for n in _entry_points() if n not in ALIASES)]))


def installed(name: str) -> bool:
    """Whether a method can be used: whether the program that carries it out is there."""
    return name not in ENGINES or bool(solver_class(name).installed())


def usable_methods() -> list[str]:
    """Our own methods, and those of other programs that are installed."""
    return [*METHODS, *(name for name in ENGINES if installed(name))]


def canonical_name(name: str) -> str:
    """The present name of a method that may be called by an earlier one."""
    return ALIASES.get(name, name)


def solver_class(name: str) -> type[Solver]:
    """The class of a method, by its name or as "module:Class", or an OptionError that lists the methods there are."""
    name = canonical_name(name)
    if name in _registered:
        return _registered[name]
    place = METHODS.get(name) or ENGINES.get(name) or (name if ":" in name else "")
    if not place and name in _entry_points():
        place = _entry_points()[name].value
    if not place:
        raise OptionError(f"unknown method {name!r}; methods are {', '.join(method_names())}")
    try:
        return _load(place)
    except (ImportError, AttributeError) as error:
        if name in METHODS or name in ENGINES:
            raise
        raise OptionError(f"method {name!r} cannot be loaded: {error}") from None


@cache
def _load(place: str) -> type[Solver]:
    """The class at "module:Class"."""
    module, _, attribute = place.partition(":")
    with unforked:
        cls: type[Solver] = getattr(import_module(module), attribute)
    return cls


def place_of(name: str) -> str:
    """What another process has to be told to find a method: its name, or "module:Class" for a registered one."""
    cls = _registered.get(name)
    if cls is None:
        return name
    if cls.__module__ == "__main__" or "<locals>" in cls.__qualname__:
        raise OptionError(
            f"method {name!r} must live in a module that other processes can import, not in {cls.__module__}"
        )
    return f"{cls.__module__}:{cls.__qualname__}"


def make_solver(method: str | Solver, options: dict[str, Any]) -> Solver:
    """A solver with options; unknown names and wrong types are OptionErrors that say what is possible."""
    if not isinstance(method, str):
        if options:
            raise OptionError(f"method is an instance, which has its options already; got {', '.join(options)} as well")
        return method
    cls = solver_class(method)
    types_of = _option_types(cls)
    for key, value in options.items():
        if key not in types_of:
            known = ", ".join(types_of) or "none"
            raise OptionError(f"method {method!r} has no option {key!r}; its options are {known}")
        options[key] = _checked(method, key, types_of[key], value)
    try:
        return cls(**options)
    except (TypeError, ValueError) as error:
        if isinstance(error, OptionError):
            raise
        raise OptionError(f"method {method!r}: {error}") from None


@cache
def _option_types(cls: type[Solver]) -> dict[str, list[str]]:
    """The names of the types that each option of a method takes."""
    hints = typing.get_type_hints(cls)
    return {f.name: _kinds(hints[f.name]) for f in dataclasses.fields(cls)}


def _kinds(hint: Any) -> list[str]:
    """The types that an option takes, by name: "int", "None", ... of an annotation like ``int | None``."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return [kind for part in typing.get_args(hint) for kind in _kinds(part)]
    if hint is type(None):
        return ["None"]
    return [getattr(hint, "__name__", str(hint))]


def _checked(method: str, option: str, kinds: list[str], value: Any) -> Any:
    """The value as one of the types of the option: text from a command line is parsed, nothing else is bent."""
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
    raise OptionError(f"method {method!r}: option {option!r} takes {' or '.join(kinds)}, got {value!r}")


def describe_method(name: str) -> dict[str, Any]:
    """What there is to know about a method, for `tightmap methods NAME` and for programs."""
    cls = solver_class(name)
    able = cls.capabilities
    return {
        "name": canonical_name(name),
        "summary": cls.summary,
        "max_order": able.largest_order,
        "needs": able.words(),
        "gives_bound": able.bounds,
        "installed": installed(canonical_name(name)),
        "capabilities": dataclasses.asdict(able),
        "options": {f.name: _default(f) for f in dataclasses.fields(cls)},
        "option_types": {option: " or ".join(kinds) for option, kinds in _option_types(cls).items()},
        "about": inspect.getdoc(inspect.getmodule(cls)) or "",
        "about_options": inspect.getdoc(cls) or "",
    }


def methods() -> list[dict[str, Any]]:
    """Every method with what it needs and gives, for `tightmap methods` and for programs."""
    rows = []
    for name in method_names():
        try:
            row = describe_method(name)
        except OptionError:  # a package that is installed but broken
            continue
        rows.append({key: row[key] for key in SHORT})
    return rows


def _default(field: dataclasses.Field[Any]) -> Any:
    return None if field.default is dataclasses.MISSING else field.default
