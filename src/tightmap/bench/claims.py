"""The paper's findings as comparisons of means, and whether they hold in a set of measured runs.

The sentences are those of the paper's experiments section, shortened; each becomes comparisons "the mean energy of this
method is lower than that of those methods, on these families".  What was not measured is not judged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tightmap.bench.instances import FAMILIES, PAPER
from tightmap.bench.records import Row
from tightmap.bench.tables import BEST_TOLERANCE, Group, collect, number, statistics

INPAINTING = ("inpainting-n4", "inpainting-n8")
SMALL = (*INPAINTING, "matching", "segmentation")
NONCONVEX = ("bcd", "pgd", "fw", "admm")


@dataclass
class Verdict:
    """A claim, whether it holds (None: not enough was measured), and the figures against it or for it."""

    claim: str
    holds: bool | None
    evidence: list[str] = field(default_factory=list)


class Means:
    """Mean energies over the instances of a family, of the methods that have a result on all of them."""

    def __init__(self, groups: list[Group]) -> None:
        self.groups = {g.family: g for g in groups}

    def energy(self, family: str, method: str) -> float | None:
        group = self.groups.get(family)
        if group is None or not group.instances:
            return None
        return statistics(group.measured, group.instances, method, BEST_TOLERANCE).value

    def proven(self, family: str, method: str) -> float | None:
        group = self.groups.get(family)
        if group is None or self.energy(family, method) is None:
            return None
        return statistics(group.measured, group.instances, method, BEST_TOLERANCE).verified


def _lower(
    means: Means, claim: str, winner: str, losers: tuple[str, ...], families: tuple[str, ...], margin: float = 0.0
) -> Verdict:
    """The winner's mean is below (or equal to) each loser's on each family; ``margin`` is relative."""
    judged, against = 0, []
    for family in families:
        own = means.energy(family, winner)
        for loser in losers:
            other = means.energy(family, loser)
            if own is None or other is None:
                continue
            judged += 1
            if own > other + margin * abs(other) + BEST_TOLERANCE * max(1.0, abs(other)):
                against.append(f"{family}: {winner} {number(own)}, {loser} {number(other)}")
    if not judged:
        return Verdict(claim, None)
    return Verdict(claim, not against, against or [f"{judged} comparisons, all so"])


def _all_proven(means: Means, claim: str, method: str, family: str) -> Verdict:
    share = means.proven(family, method)
    return Verdict(claim, None if share is None else share == 100.0, [] if share is None else [f"{share:.0f} % proven"])


def _reaches_the_best(means: Means, claim: str, method: str, family: str) -> Verdict:
    group, own = means.groups.get(family), means.energy(family, method)
    if group is None or own is None:
        return Verdict(claim, None)
    share = statistics(group.measured, group.instances, method, BEST_TOLERANCE).best_value
    return Verdict(claim, share == 100.0, [f"best on {share:.0f} % of the instances"])


def verdicts(groups: list[Group]) -> list[Verdict]:
    """Every claim of the paper's experiments section, judged by these runs, and what is said of ``auto``."""
    means = Means(groups)
    pairwise = (*INPAINTING, "matching", "stereo")
    others = ("trbp", "ad3", "bundle", "mplp", "mplp-c", "cqp")
    all_but_matching = tuple(f for f in FAMILIES if f != "matching")
    checks: list[Callable[[], Verdict]] = [
        lambda: _lower(means, "ADMM significantly outperforms BCD, PGD and FW", "admm", ("bcd", "pgd", "fw"), FAMILIES),
        lambda: _lower(
            means,
            "ADMM outperforms TRBP, ADDD, BUNDLE, MPLP and CQP on all models, MPLP-C on all but matching",
            "admm",
            others,
            all_but_matching,
        ),
        lambda: _lower(
            means,
            "the same on matching, except MPLP-C",
            "admm",
            tuple(m for m in others if m != "mplp-c"),
            ("matching",),
        ),
        lambda: _lower(
            means,
            "ADMM outperforms FastPD, expansion or fusion, and TRW-S on small and medium models (not stereo)",
            "admm",
            ("fastpd", "expansion", "fusion", "trws"),
            SMALL,
        ),
        lambda: _lower(
            means,
            "matching: methods that solve the dual of the LP are far behind ADMM",
            "admm",
            ("mplp", "ad3", "bundle", "subgradient"),
            ("matching",),
            -0.05,
        ),
        lambda: _reaches_the_best(means, "matching: MPLP-C reaches the optimum of all instances", "mplp-c", "matching"),
        lambda: _all_proven(means, "segmentation: SRMP proves all instances", "srmp", "segmentation"),
        lambda: _lower(means, "segmentation: ADMM is within 1 % of SRMP", "admm", ("srmp",), ("segmentation",), 0.01),
        lambda: _lower(
            means,
            "stereo: TRW-S is best, before the moves and ADMM",
            "trws",
            ("fastpd", "expansion", "admm", "bcd"),
            ("stereo",),
        ),
        lambda: _lower(
            means,
            "second-order stereo: SRMP is best",
            "srmp",
            ("fusion", "admm", "bcd", "pgd", "fw", "mplp", "ad3", "bundle"),
            ("second-order",),
        ),
        *(
            lambda m=m: _lower(means, f"CQP is worse than {m.upper()} on all pairwise models", m, ("cqp",), pairwise)
            for m in NONCONVEX
        ),
        lambda: _lower(
            means,
            "auto is at least as good as every other method, on every family (ours, not the paper's)",
            "auto",
            tuple(m for g in groups for m in g.methods if m != "auto"),
            FAMILIES,
            1e-4,
        ),
    ]
    return [check() for check in checks]


def claims_table(groups: list[Group]) -> str:
    lines = ["| claim | here | figures |", "|---|---|---|"]
    words = {True: "holds", False: "does not hold", None: "not measured"}
    for v in verdicts(groups):
        evidence = "; ".join(dict.fromkeys(v.evidence[:6])) + (" …" if len(v.evidence) > 6 else "")
        lines.append(f"| {v.claim} | {words[v.holds]} | {evidence} |")
    return "\n".join(lines)


def data_table() -> str:
    """Which models are the paper's own, and which stand in for them."""
    lines = ["| family | the paper's own model | stands in |", "|---|---|---|"]
    for family in FAMILIES:
        own = [i.name for i in PAPER if i.family == family and i.published is not None]
        other = [i.name for i in PAPER if i.family == family and i.published is None]
        lines.append(f"| {family} | {', '.join(own)} | {', '.join(other)} |")
    return "\n".join(lines)


def paper_page(groups: list[Group], tables: str, conditions: str) -> str:
    """docs/paper.md: data, claims, then every table."""
    return f"""# The paper, reproduced

Written by `tightmap bench paper --page docs/paper.md`; every figure was measured by that command, except the published
ones, which stand in rows of their own, in italics.  {conditions}

## The models

{data_table()}

Models of the second column were rebuilt from their published description and agree with the published energies; those
of the third are of the same kind, from other data, because the originals are not available.

## The claims

{claims_table(groups)}

"Outperforms" is read as a mean energy that is not higher.

## The tables

{tables}
"""


def time_limits(rows: list[Row]) -> str:
    """How long runs were allowed to take: in one phrase, or by family where that differs."""
    families: dict[float, list[str]] = {}
    for row in rows:
        if row.get("time_limit") is not None:
            members = families.setdefault(float(row["time_limit"]), [])
            if row["family"] not in members:
                members.append(str(row["family"]))
    if len(families) <= 1:
        return "".join(f"at most {limit:g} s each" for limit in families) or "no time limit"
    return "at most " + ", ".join(f"{limit:g} s each ({', '.join(families[limit])})" for limit in sorted(families))


def write_paper_page(rows: list[Row], path: Path) -> None:
    from tightmap.bench.formats import markdown

    groups = collect(rows)
    machines = sorted({str(r["machine"]) for r in rows if r.get("machine")})
    threads = sorted({int(r["threads"]) for r in rows if r.get("threads")})
    conditions = f"{len(rows)} runs, {time_limits(rows)}"
    conditions += f", {' or '.join(map(str, threads))} thread{'s' * (threads != [1])}" if threads else ""
    conditions += f"; {'; '.join(machines)}."
    path.write_text(paper_page(groups, markdown(groups), conditions), encoding="utf-8")
