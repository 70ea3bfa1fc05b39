"""The default call on the public Bayesian networks that pgmpy carries, with and without evidence, beside toulbar2.

    pip download --no-deps pgmpy==0.1.24        (later releases fetch the networks from elsewhere)
    python benchmarks/bayesian_networks.py pgmpy-0.1.24-py3-none-any.whl [--limit 5] [--only munin ...]

Energies are -log of probabilities.  Evidence: a sample of the network is drawn, and half of the variables without
children have the value that they have there.  Nothing in tightmap was chosen by the networks whose names begin with
one of CHECKED; the elimination of ``exact`` was developed looking at the others.
"""

from __future__ import annotations

import argparse
import gzip
import re
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import tightmap as tm
from auto import Case, toulbar2

CHECKED = ("andes", "diabetes", "hepar2", "link", "munin1", "munin3", "pathfinder", "water")
Table = tuple[list[int], np.ndarray]  # parents and child, probabilities


def networks(wheel: Path) -> Iterator[tuple[str, list[int], list[Table]]]:
    """Name, numbers of values and conditional probabilities of every network in the archive."""
    with zipfile.ZipFile(wheel) as archive:
        for member in sorted(archive.namelist()):
            if member.endswith(".bif.gz"):
                yield (
                    Path(member).name.removesuffix(".bif.gz"),
                    *read_bif(gzip.decompress(archive.read(member)).decode()),
                )


def read_bif(text: str) -> tuple[list[int], list[Table]]:
    values: dict[str, list[str]] = {}
    for name, listed in re.findall(r"variable\s+(\S+)\s*\{\s*type\s+discrete\s*\[[^]]*\]\s*\{([^}]*)\}", text):
        values[name] = [value.strip() for value in listed.split(",")]
    number = {name: i for i, name in enumerate(values)}
    tables = []
    for head, body in re.findall(r"probability\s*\(([^)]*)\)\s*\{([^}]*)\}", text):
        child, _, given = (part.strip() for part in head.partition("|"))
        parents = [name.strip() for name in given.split(",")] if given else []
        table = np.full([len(values[name]) for name in (*parents, child)], np.nan)
        for line in filter(None, (row.strip() for row in body.split(";"))):
            key, numbers = re.fullmatch(r"(table|\([^)]*\))(.*)", line, re.DOTALL).groups()  # type: ignore[union-attr]
            names = [] if key == "table" else [name.strip() for name in key[1:-1].split(",")]
            place = tuple(values[parent].index(value) for parent, value in zip(parents, names, strict=True))
            table[place] = np.array(numbers.replace(",", " ").split(), float).reshape(table[place].shape)
        if np.isnan(table).any():
            raise SystemExit(f"the probabilities of {child} are not complete")
        tables.append(([number[name] for name in (*parents, child)], table))
    return [len(v) for v in values.values()], tables


def evidence(cards: list[int], tables: list[Table]) -> dict[int, int]:
    rng = np.random.default_rng(len(cards))
    sample: dict[int, int] = {}
    waiting = tables
    while waiting:
        later = []
        for scope, table in waiting:
            if all(parent in sample for parent in scope[:-1]):
                chances = table[tuple(sample[parent] for parent in scope[:-1])]
                sample[scope[-1]] = int(rng.choice(len(chances), p=chances / chances.sum()))
            else:
                later.append((scope, table))
        waiting = later
    parents = {i for scope, _ in tables for i in scope[:-1]}
    leaves = [i for i in range(len(cards)) if i not in parents]
    chosen = rng.choice(leaves, max(1, len(leaves) // 2), replace=False).tolist()
    return {i: sample[i] for i in sorted(chosen)}


def model_of(cards: list[int], tables: list[Table], known: dict[int, int]) -> tm.Model:
    model = tm.Model(cards)
    with np.errstate(divide="ignore"):
        for scope, table in tables:
            model.add_factors([scope], -np.log(table))
    for i, value in known.items():
        model.add_unaries([np.where(np.arange(cards[i]) == value, 0.0, np.inf)], [i])
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--limit", type=float, default=5.0)
    parser.add_argument("--only", nargs="*", help="beginnings of names")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    print(
        f"{'network':14}{'variables':>10}{'evidence':>9}{'auto s':>9}{'energy':>14}  {'status':12}toulbar2: s, energy"
    )
    for name, cards, tables in networks(given.wheel):
        if given.only and not name.startswith(tuple(given.only)):
            continue
        for known in ({}, evidence(cards, tables)):
            case = Case("networks", name, lambda c=cards, t=tables, k=known: model_of(c, t, k))
            model = case.build()
            begin = time.perf_counter()
            result = tm.solve(model, time_limit=given.limit, threads=given.threads)
            wall = time.perf_counter() - begin
            print(
                f"{name:14}{len(cards):10}{len(known):9}{wall:9.3f}{result.energy:14.6f}  {result.status.name:12}"
                f"{toulbar2(case, given.limit)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
