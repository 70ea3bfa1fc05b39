"""From rows to tables in the layout of the paper.

Per family: for every instance its value, bound and runtime, a column per method; below, means and the shares of
instances on which a method has the best value, the best bound, and a proof of optimality.  Published figures stand in
rows of their own that say so, and take no part in the statistics of what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tightmap.bench import published
from tightmap.bench.instances import FAMILIES, PAPER
from tightmap.bench.records import Row

BEST_TOLERANCE = 1e-6  # relative: two energies that agree to this are the same
PAPER_TOLERANCE = 0.005  # the paper prints two decimals


@dataclass(frozen=True)
class Entry:
    """What is known about one method on one instance, measured or published."""

    value: float | None = None
    bound: float | None = None
    runtime: float | None = None
    status: str = ""
    reason: str = ""
    memory: float | None = None
    verified: bool = False
    feasible: bool = True


@dataclass
class Group:
    """One family: entries by (instance, method), measured and published apart."""

    family: str
    instances: list[str] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    measured: dict[tuple[str, str], Entry] = field(default_factory=dict)
    published: dict[tuple[str, str], Entry] = field(default_factory=dict)
    rows: dict[tuple[str, str], Row] = field(default_factory=dict)


class Cell(NamedTuple):
    text: str
    bold: bool = False
    published: bool = False


@dataclass
class Table:
    title: str
    header: list[str]
    rows: list[list[Cell]] = field(default_factory=list)
    rules: set[int] = field(default_factory=set)  # a line before these rows
    notes: list[str] = field(default_factory=list)
    fixed: int = 2  # leading columns that are repeated when a wide table is split


def entry(row: Row) -> Entry:
    """An entry of a measured row."""
    return Entry(
        value=row.get("energy"),
        bound=row.get("lower_bound"),
        runtime=row.get("elapsed"),
        status=str(row.get("status", "")),
        reason=str(row.get("reason", "")),
        memory=row.get("peak_memory_mb"),
        verified=row.get("status") == "OPTIMAL",
        feasible=bool(row.get("feasible", True)),
    )


def collect(rows: Iterable[Row]) -> list[Group]:
    """Groups in the order of the paper; where a run was repeated, its last row counts."""
    kept: dict[tuple[str, str, str, str], Row] = {}
    variants: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        variant = f"{row.get('seed', 0)}"
        variants.setdefault((row["family"], row["method"]), set()).add(variant)
        kept[row["family"], row["instance"], row["method"], variant] = row
    groups: dict[str, Group] = {}
    for (family, instance, method, variant), row in kept.items():
        group = groups.setdefault(family, Group(family))
        name = method if len(variants[family, method]) == 1 else f"{method} seed {variant}"
        if instance not in group.instances:
            group.instances.append(instance)
        if name not in group.methods:
            group.methods.append(name)
        group.measured[instance, name] = entry(row)
        group.rows[instance, name] = row
    same = {(i.family, i.name): i.published for i in PAPER if i.published}
    for group in groups.values():
        for instance in group.instances:
            theirs = same.get((group.family, instance))
            if theirs is None:
                continue
            for (_, method), figure in published.of(group.family, theirs).items():
                group.published[instance, method] = from_figure(figure)
        _order(group)
    order = {family: k for k, family in enumerate(FAMILIES)}
    return sorted(groups.values(), key=lambda g: (order.get(g.family, len(order)), g.family))


def from_figure(figure: published.Figure) -> Entry:
    known = figure.value is not None and figure.bound is not None
    proven = known and figure.value - figure.bound <= PAPER_TOLERANCE  # type: ignore[operator]
    return Entry(figure.value, figure.bound, figure.runtime, "published", verified=proven)


def _order(group: Group) -> None:
    """Instances in the order of the paper's families, methods in that of the registry, peers last."""
    from tightmap.registry import method_names

    instances = [i.name for i in PAPER if i.family == group.family]
    group.instances.sort(key=lambda n: instances.index(n) if n in instances else len(instances))
    known = method_names()
    group.methods.sort(
        key=lambda m: (m.startswith("peer:"), known.index(m) if m in known else len(known), m.startswith("auto"))
    )


# ---------------------------------------------------------------------- statistics


@dataclass(frozen=True)
class Statistics:
    value: float | None
    bound: float | None
    runtime: float | None
    best_value: float
    best_bound: float
    verified: float


def statistics(
    entries: dict[tuple[str, str], Entry], instances: list[str], method: str, tolerance: float
) -> Statistics:
    """Means over the instances (none where one is missing) and shares in per cent, among the methods of ``entries``."""
    mine = [entries.get((i, method), Entry()) for i in instances]
    wins = bounds = proofs = 0
    for instance, item in zip(instances, mine, strict=True):
        low, high = best(entries, instance)
        wins += item.value is not None and item.feasible and low is not None and _close(item.value, low, tolerance)
        bounds += item.bound is not None and high is not None and _close(item.bound, high, tolerance)
        proofs += item.verified
    share = 100.0 / max(len(instances), 1)
    return Statistics(
        _mean([e.value if e.feasible else None for e in mine]),
        _mean([e.bound for e in mine]),
        _mean([e.runtime for e in mine]),
        share * wins,
        share * bounds,
        share * proofs,
    )


def best(entries: dict[tuple[str, str], Entry], instance: str) -> tuple[float | None, float | None]:
    """The lowest value and the highest bound of all methods on an instance."""
    here = [e for (i, _), e in entries.items() if i == instance]
    values = [e.value for e in here if e.value is not None and e.feasible]
    bounds = [e.bound for e in here if e.bound is not None]
    return min(values, default=None), max(bounds, default=None)


def _close(a: float, b: float, tolerance: float) -> bool:
    return abs(a - b) <= (tolerance if tolerance == PAPER_TOLERANCE else tolerance * max(1.0, abs(b)))


def _mean(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


# ---------------------------------------------------------------------- layout


def number(value: float | None, missing: str = "") -> str:
    if value is None:
        return missing
    if not math.isfinite(value):
        return "inf" if value > 0 else "-inf"
    return f"{value:.2f}" if abs(value) < 1e9 else f"{value:.3e}"


def _value(item: Entry) -> str:
    if item.status in ("REFUSED", "FAILED", "KILLED"):
        return {"REFUSED": "n/a", "FAILED": "failed", "KILLED": "killed"}[item.status]
    return number(item.value, "infeasible" if item.status and item.status != "published" else "")


def family_table(group: Group, brief: bool = False) -> Table:
    """The paper's table of one family, with the published rows below the measured ones of the same model.

    ``brief`` leaves out methods that were only published.
    """
    extra = [m for m in published.NAMES if any(k[1] == m for k in group.published) and m not in group.methods]
    if brief:
        extra = []
    methods = [*group.methods, *extra]
    table = Table(group.family, [group.family, "", *methods])
    for instance in group.instances:
        table.rules.add(len(table.rows))
        _instance_rows(table, instance, instance, methods, group.measured, False)
        if any(k[0] == instance for k in group.published):
            _instance_rows(table, "published", instance, methods, group.published, True)
    if len(group.instances) > 1:
        table.rules.add(len(table.rows))
        _summary_rows(table, "", methods, group.measured, group.instances, BEST_TOLERANCE, False)
    common = [i for i in group.instances if any(k[0] == i for k in group.published)]
    if common and len(group.instances) > 1:
        table.rules.add(len(table.rows))
        _summary_rows(table, "published, ", methods, group.published, common, PAPER_TOLERANCE, True)
    if common:
        table.notes.append(f"Rows marked published: {published.SOURCE}; not measured here.")
    for (instance, method), item in group.measured.items():
        if item.reason:
            table.notes.append(f"{method} on {instance}: {item.status.lower()}, {item.reason}")
    return table


def _instance_rows(
    table: Table, title: str, instance: str, methods: list[str], entries: dict[tuple[str, str], Entry], theirs: bool
) -> None:
    low, high = best(entries, instance)
    tolerance = PAPER_TOLERANCE if theirs else BEST_TOLERANCE
    lines: list[list[Cell]] = [[Cell(title, published=theirs), Cell("value", published=theirs)]]
    lines += [[Cell(""), Cell(name, published=theirs)] for name in ("bound", "runtime")]
    for method in methods:
        item = entries.get((instance, method))
        if item is None:
            for line in lines:
                line.append(Cell("", published=theirs))
            continue
        top = item.value is not None and item.feasible and low is not None and _close(item.value, low, tolerance)
        sharp = item.bound is not None and high is not None and _close(item.bound, high, tolerance)
        lines[0].append(Cell(_value(item), top, theirs))
        lines[1].append(Cell(number(item.bound), sharp, theirs))
        lines[2].append(Cell(number(item.runtime), False, theirs))
    table.rows += lines


def _summary_rows(
    table: Table,
    prefix: str,
    methods: list[str],
    entries: dict[tuple[str, str], Entry],
    instances: list[str],
    tolerance: float,
    theirs: bool,
) -> None:
    known = {m for _, m in entries}
    figures = {m: statistics(entries, instances, m, tolerance) for m in methods if m in known}
    for name, attribute in (
        ("mean value", "value"),
        ("mean bound", "bound"),
        ("mean runtime", "runtime"),
        ("best value %", "best_value"),
        ("best bound %", "best_bound"),
        ("verified opt %", "verified"),
    ):
        cells = [Cell(prefix + name, published=theirs), Cell("")]
        cells += [
            Cell(number(getattr(figures[m], attribute)) if m in figures else "", published=theirs) for m in methods
        ]
        table.rows.append(cells)


def published_table(family: str, brief: bool = False) -> Table | None:
    """The published table of a family alone, for families whose instances are not the same as ours.

    ``brief`` leaves out the instances and shows the means.
    """
    figures = published.of(family)
    if not figures:
        return None
    entries = {key: from_figure(f) for key, f in figures.items()}
    instances = list(dict.fromkeys(i for i, _ in entries))
    methods = [m for m in published.NAMES if any(k[1] == m for k in entries)]
    table = Table(f"{family}, published", [f"{family} (published)", "", *(published.NAMES[m] for m in methods)])
    for instance in () if brief else instances:
        table.rules.add(len(table.rows))
        _instance_rows(table, instance, instance, methods, entries, True)
    table.rules.add(len(table.rows))
    _summary_rows(table, "", methods, entries, instances, PAPER_TOLERANCE, True)
    table.notes.append(f"{published.SOURCE}: other instances than those above, not measured here.")
    return table


def tables(groups: list[Group], brief: bool = False) -> list[Table]:
    """All tables of a benchmark; published figures of other instances only beside the paper's own families."""
    own = {(i.family, i.name) for i in PAPER}
    found: list[Table] = []
    for group in groups:
        found.append(family_table(group, brief))
        if not group.published and any((group.family, name) in own for name in group.instances):
            theirs = published_table(group.family, brief)
            if theirs is not None:
                found.append(theirs)
    return found
