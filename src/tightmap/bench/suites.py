"""What to run: the built-in suites and those of users, as lists of runs.

    smoke    small models, a few methods: does everything work, in under a minute
    paper    the families of the paper, its methods and auto
    peers    models that other programs can solve too, beside them, with ratios (duels.py)

A suite of your own is a TOML file:

    time_limit = 30
    methods = ["trws", "admm"]            # all applicable ones by default
    seeds = [0]

    [options.admm]                        # options of a method
    max_iterations = 500

    [[model]]
    path = "models/a.uai"                 # relative to the suite
    evidence = "models/a.uai.evid"
    family = "mine"

    [[model]]
    name = "small ring"
    problem = "inpainting"                # a builder of tightmap.problems and its arguments
    arguments = {size = 60, inverse = true}
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tightmap.bench.instances import FAMILIES, PAPER, SMOKE, Instance
from tightmap.bench.records import Run
from tightmap.errors import ModelError, OptionError

PAPER_METHODS = (  # those of its tables, the subgradient method that it mentions, and ours to compare with
    "auto", "bcd", "pgd", "fw", "cqp", "admm", "trws", "trbp", "srmp", "mplp", "mplp-c", "ad3", "subgradient", "bundle",
    "expansion", "fastpd", "fusion",
)  # fmt: skip
SMOKE_METHODS = ("auto", "bcd", "trws", "admm", "expansion", "srmp")
SUITES = ("smoke", "paper", "peers")
_KEYS = {"time_limit", "methods", "seeds", "options", "model"}
_MODEL_KEYS = {"path", "evidence", "family", "name", "problem", "arguments"}


@dataclass
class Suite:
    """Runs, and what was left out and why."""

    name: str
    runs: list[Run]
    skipped: list[str] = field(default_factory=list)


def available_methods() -> dict[str, int | None]:
    """Methods of this installation and the largest order of factors that each takes."""
    from tightmap.registry import methods

    return {row["name"]: row["max_order"] for row in methods() if row["installed"]}


def _choose(asked: list[str] | None, default: tuple[str, ...] | None, known: dict[str, int | None]) -> list[str]:
    from tightmap.bench.peers import PEERS
    from tightmap.registry import ENGINES, canonical_name

    if asked:
        asked = [canonical_name(name) for name in asked]
        for name in asked:
            if name not in known and name not in PEERS:
                raise OptionError(f"unknown method {name!r}; methods are {', '.join([*known, *PEERS])}")
        return asked
    return [m for m in (default or tuple(m for m in known if m not in ENGINES)) if m in known]


def _families(instances: tuple[Instance, ...], families: list[str] | None) -> list[Instance]:
    if not families:
        return list(instances)

    def wanted(instance: Instance) -> bool:
        full = f"{instance.family}/{instance.name}"
        return any(f in (instance.family, full) or instance.family.startswith(f"{f}-") for f in families)

    chosen = [i for i in instances if wanted(i)]
    if not chosen:
        known = ", ".join(dict.fromkeys([*FAMILIES, *(i.family for i in instances)]))
        raise OptionError(f"no family matches {', '.join(families)}; families are {known}")
    return chosen


def built_in(
    name: str,
    families: list[str] | None = None,
    methods: list[str] | None = None,
    time_limit: float | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> Suite:
    """One of the suites smoke, paper and peers."""
    known = available_methods()
    default: tuple[str, ...] | None
    if name == "smoke":
        instances, default, limit = SMOKE, SMOKE_METHODS, 1.0
    elif name == "paper":
        instances, default, limit = PAPER, PAPER_METHODS, 60.0
    elif name == "peers":
        return _peers(families, methods, 60.0 if time_limit is None else time_limit, seed, threads)
    else:
        raise OptionError(f"unknown suite {name!r}; suites are {', '.join(SUITES)}, or a .toml file")
    limit = limit if time_limit is None else time_limit
    suite = Suite(name, [])
    chosen = _choose(methods, default, known)
    for instance in _families(instances, families):
        if instance.missing:
            suite.skipped.append(f"{instance.family}/{instance.name}: {instance.missing}")
            continue
        for method in chosen:
            order = known.get(method)
            if order is None or instance.order <= order:
                suite.runs.append(Run(instance.family, instance.name, method, limit, seed, threads))
    return suite


def _peers(
    families: list[str] | None, methods: list[str] | None, limit: float, seed: int, threads: int | None
) -> Suite:
    """The duels, or the methods that were asked for on their models; one thread each by default, as peers have."""
    from tightmap.bench.duels import DUELS, INSTANCES
    from tightmap.bench.peers import PEERS, installed

    there = installed()
    known = available_methods() | {peer: None for peer in there}
    asked = _choose(methods, None, known) if methods else None
    suite = Suite("peers", [])
    suite.skipped += [f"{peer}: the module {PEERS[peer][1]} is not installed" for peer in PEERS if peer not in there]
    models = {(i.family, i.name): i for i in (*PAPER, *INSTANCES)}
    duels = {(d.family, d.instance): d for d in DUELS}
    for instance in _families(tuple(models[key] for key in duels), families):
        if instance.missing:
            suite.skipped.append(f"{instance.family}/{instance.name}: {instance.missing}")
            continue
        duel = duels[instance.family, instance.name]
        for method in asked or [m for m in (*duel.ours, *duel.peers) if m in known]:
            suite.runs.append(Run(instance.family, instance.name, method, limit, seed, threads or 1))
    return suite


def from_file(
    path: str,
    families: list[str] | None = None,
    methods: list[str] | None = None,
    time_limit: float | None = None,
    threads: int | None = None,
) -> Suite:
    """A suite of the user's own models."""
    file = Path(path)
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"{path}: not a TOML file ({error})") from None
    _check(path, content, _KEYS)
    models = content.get("model", [])
    if not isinstance(models, list) or not models:
        raise ModelError(f"{path}: expected at least one [[model]]")
    chosen = _choose(methods or content.get("methods"), None, available_methods())
    limit = time_limit if time_limit is not None else float(content.get("time_limit", 60.0))
    suite = Suite(file.stem, [])
    for number, entry in enumerate(models, 1):
        _check(f"{path}, model {number}", entry, _MODEL_KEYS)
        source, name = _source(file, entry, number)
        family = str(entry.get("family", file.stem))
        if families and family not in families:
            continue
        for method in chosen:
            for seed in content.get("seeds", [0]):
                options = dict(content.get("options", {}).get(method, {}))
                suite.runs.append(Run(family, name, method, limit, int(seed), threads, options, source))
    return suite


def _check(where: str, entry: Any, known: set[str]) -> None:
    if not isinstance(entry, dict):
        raise ModelError(f"{where}: expected a table")
    for key in entry:
        if key not in known:
            raise ModelError(f"{where}: unknown key {key!r}; keys are {', '.join(sorted(known))}")


def _source(file: Path, entry: dict[str, Any], number: int) -> tuple[dict[str, Any], str]:
    if ("path" in entry) == ("problem" in entry):
        raise ModelError(f"{file}, model {number}: give either path or problem")
    arguments = dict(entry.get("arguments", {}))
    if "problem" in entry:
        from tightmap import problems

        if entry["problem"] not in problems.__all__:
            raise ModelError(f"{file}, model {number}: unknown problem {entry['problem']!r}")
        return {"problem": entry["problem"], "arguments": arguments}, str(entry.get("name", entry["problem"]))
    path = file.parent / entry["path"]
    if not path.exists():
        raise ModelError(f"{file}, model {number}: {path} does not exist")
    source: dict[str, Any] = {"path": str(path.resolve()), "arguments": arguments}
    if "evidence" in entry:
        source["evidence"] = str((file.parent / entry["evidence"]).resolve())
    return source, str(entry.get("name", Path(entry["path"]).name))
