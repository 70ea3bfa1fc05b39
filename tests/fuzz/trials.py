"""Trials: what is done with a model and which properties it must then have."""

from __future__ import annotations

import threading
import traceback
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import tightmap as tm
from tightmap.registry import METHODS

from .checks import RUN, SHOWN, holds
from .options import random_options
from .oracle import Oracle
from .recipe import Recipe
from .sizes import IMAGES
from .twins import TWINS, Twin, relabelled

KINDS = ("plain", "init", "relaxed", "warm", "foreign", "again", "threads", "grown", "stop", "plan", "together")
MOMENTS = (1e-9, 0.01, 0.05)  # limits that may end a run anywhere
TIMED = ("plain", "init", "relaxed", "warm", "foreign")  # kinds of trial that compare nothing that time may change
SLOW = ("admm",)  # methods that take seconds to end by themselves, and so mostly get a limit
# these must say OPTIMAL or INFEASIBLE of a small model when nothing limits them
PROVES = ("exact", "auto", "cpsat", "toulbar2")
AMPLE = 20.0  # seconds that are no limit for a small model


@dataclass(frozen=True)
class Trial:
    """One method, its arguments, and what is done besides one plain run.

    kind : one of KINDS, or the name of a twin.  "warm" begins with a result of this model, "foreign" with one of
           another model of the same size, "grown" solves the model once before its last calls are made, "plan" is the
           second run of a plan whose first had other unaries, "together" runs beside another method in a second thread
    seed : of what the kind makes up: a labelling, a twin
    other : method whose result is the warm start
    """

    method: str
    kind: str = "plain"
    arguments: dict[str, Any] = field(default_factory=dict)  # of solve()
    options: dict[str, Any] = field(default_factory=dict)  # of the method
    watched: bool = True
    seed: int = 0
    other: str = ""

    def __str__(self) -> str:
        given = ", ".join(f"{k}={v!r}" for k, v in {**self.arguments, **self.options}.items())
        return f"{self.method}({given}) {self.kind}" + (f" after {self.other}" if self.other else "")


@dataclass(frozen=True)
class Broken:
    """A property that does not hold, or what was raised instead of a result."""

    check: str
    message: str


@dataclass
class Outcome:
    """Which checks were made, which of them failed, and the facts that a reproducer writes down."""

    checks: list[str] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)
    refused: bool = False
    facts: dict[str, Any] = field(default_factory=dict)


def random_trials(seed: int, case: int, methods: list[str], count: int = 2) -> list[Trial]:
    """A plain trial of every method and others of other kinds; those of a method do not depend on the other methods."""
    trials = []
    for method in methods:
        rng = np.random.default_rng([seed, case, zlib.crc32(method.encode())])
        trials.append(random_trial(rng, method, "plain"))
        for _ in range(count - 1):
            trials.append(random_trial(rng, method, str(rng.choice(KINDS[1:] + tuple(TWINS)))))
    return trials


def random_trial(rng: np.random.Generator, method: str, kind: str) -> Trial:
    arguments: dict[str, Any] = {"seed": int(rng.integers(100))}
    limit = rng.random()
    if limit < (0.85 if method in SLOW else 0.5):
        arguments["max_iterations"] = int(rng.choice([0, 1, 2, 10, 60, 60]))
    elif limit < 0.9 and (limit < 0.55 or method in SLOW):
        arguments["time_limit"] = 0.0
    elif limit < 0.65 and method in PROVES:
        arguments["time_limit"] = AMPLE
    if kind != "threads":
        arguments["threads"] = 1 if rng.random() < (0.4 if method == "auto" else 0.8) else 2
    elif "time_limit" in arguments:
        del arguments["time_limit"]
    if method == "auto" and "time_limit" in arguments and kind not in TIMED:
        arguments["threads"] = 1  # with more, methods race for the proof
    if kind in ("plan", "together") and "time_limit" in arguments:
        del arguments["time_limit"]
    other = str(rng.choice([method, *METHODS])) if kind in ("warm", "foreign", "together") else ""
    watched = bool(kind != "stop" and rng.random() < 0.6)
    if kind in TIMED and "max_iterations" not in arguments and rng.random() < 0.15:
        arguments["time_limit"] = float(rng.choice(MOMENTS))
    return Trial(method, kind, arguments, random_options(rng, method), watched, int(rng.integers(2**31)), other)


def suited(trial: Trial, recipe: Recipe) -> Recipe:
    """The model as this trial treats it: a plan has a list of edges in any case, and moves that need one."""
    if trial.kind != "plan":
        return recipe
    return replace(recipe, sizes=tuple(size for size in recipe.sizes if size not in IMAGES))


def start_labels(trial: Trial, recipe: Recipe) -> list[int]:
    """The labelling that a trial begins with."""
    return [int(s) for s in np.random.default_rng(trial.seed).integers(0, recipe.cards)]


def start_vectors(trial: Trial, recipe: Recipe) -> list[list[float]]:
    """The relaxed vectors that a trial begins with: some are labels, some are not."""
    rng = np.random.default_rng(trial.seed)
    rows = []
    for c in recipe.cards:
        row = np.eye(c)[int(rng.integers(c))] if rng.random() < 0.5 else rng.random(c) + 0.01
        rows.append((row / row.sum()).tolist())
    return rows


def twin_of(trial: Trial, recipe: Recipe) -> Twin:
    return TWINS[trial.kind](recipe, np.random.default_rng(trial.seed))


def judge(trial: Trial, recipe: Recipe, oracle: Oracle | None = None) -> Outcome:
    """Do what the trial says and check everything that must hold then."""
    outcome = Outcome()
    recipe = suited(trial, recipe)
    try:
        facts, checks = _facts(trial, recipe, oracle or Oracle(recipe))
    except tm.ModelError:
        recipe.build()  # the model is right, so it was the method that did not want it
        outcome.refused = True
        return outcome
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{where.filename.rpartition('/')[2]}:{where.lineno}"
        outcome.checks.append("nothing is raised")
        outcome.broken.append(Broken("nothing is raised", f"{type(error).__name__} in {place}: {error}"))
        return outcome
    outcome.facts = facts
    for check in checks:
        outcome.checks.append(check)
        try:
            fine = holds(check, facts)
        except Exception as error:
            fine = False
            facts["error"] = error
        if not fine:
            outcome.broken.append(Broken(check, _told(facts)))
    return outcome


def _told(facts: dict[str, Any]) -> str:
    result, before = facts["result"], facts.get("before")
    shown = [
        f"{k}={facts[k]!r}" for k in ("optimum", "rounding", "tolerance", "start", "descent", "error") if k in facts
    ]
    text = f"{result.status.name} energy={result.energy!r} lower_bound={result.lower_bound!r} " + " ".join(shown)
    if before is not None:
        text += f"; before {before.status.name} energy={before.energy!r} lower_bound={before.lower_bound!r}"
    return text


def known(trial: Trial, recipe: Recipe, oracle: Oracle) -> tuple[dict[str, float], Oracle]:
    """The numbers that properties compare with, and the oracle of the model that the trial is about in the end."""
    numbers: dict[str, float] = {}
    if trial.kind in TWINS:
        twin, other = twin_of(trial, recipe), oracle
        oracle = Oracle(twin.recipe)
        slack = oracle.tolerance + twin.factor * other.tolerance + 4.0 * oracle.blur
        numbers = {"factor": twin.factor, "shift": twin.shift, "slack": slack}
    numbers |= {name: getattr(oracle, name) for name in ("optimum", "rounding", "blur", "tolerance")}
    numbers |= {"descent": oracle.descent(), "limit": trial.arguments.get("max_iterations", 0)}
    return numbers, oracle


def foreign_recipe(trial: Trial, recipe: Recipe) -> Recipe:
    """Another model of the same variables."""
    return relabelled(recipe, np.random.default_rng(trial.seed)).recipe


def _facts(trial: Trial, recipe: Recipe, oracle: Oracle) -> tuple[dict[str, Any], list[str]]:
    """Run what the trial says: all that is known then, and the checks that are due."""
    arguments = trial.arguments | trial.options
    numbers, oracle = known(trial, recipe, oracle)
    facts: dict[str, Any] = {"model": recipe.build(), "seen": [], **numbers}
    extra: dict[str, Any] = {"callback": facts["seen"].append, "trace": True} if trial.watched else {}
    given, due = _before(trial, recipe, facts, arguments)
    if trial.kind == "plan":
        result = facts["plan"].solve(unaries=own_unaries(facts["model"]), **extra)
    elif trial.kind == "together":
        with beside(recipe.build(), trial.other):
            result = tm.solve(facts["model"], trial.method, **arguments, **(extra | given))
    else:
        result = tm.solve(facts["model"], trial.method, **arguments, **(extra | given))
    facts["result"] = result
    facts["summed"] = oracle.energy(result.labels)
    checks = [*RUN, *due] + (list(SHOWN) if trial.watched else [])
    no_time = arguments.get("time_limit") == 0.0
    moment = arguments.get("time_limit") in MOMENTS
    stopped = trial.kind == "stop" or "max_iterations" in arguments or no_time or moment
    if "max_iterations" in arguments or no_time:
        checks.append("iterations within the limit")
    if no_time:
        checks.append("no time is no time")
    if not stopped:
        checks.append("proves small models" if trial.method in PROVES else "ends by itself")
    if not no_time and oracle.free:
        checks.append("not worse than descent")
    return facts, checks


def _before(
    trial: Trial, recipe: Recipe, facts: dict[str, Any], arguments: dict[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """What comes before the run itself: more arguments for it, and what is to be checked because of that."""
    model, seen, method = facts["model"], facts["seen"], trial.method
    match trial.kind:
        case "plain":
            return {}, []
        case "stop":
            return {"callback": lambda info: seen.append(info) or len(seen) >= 2}, ["stops when asked"]
        case "init":
            labels = start_labels(trial, recipe)
            facts["start"] = model.energy(labels)
            return {"init": labels}, ["not worse than init"]
        case "relaxed":
            return {"init": start_vectors(trial, recipe)}, []
        case "warm":
            facts["before"] = tm.solve(model, trial.other, max_iterations=20, seed=1)
            return {"init": facts["before"]}, ["not worse than the run before"]
        case "foreign":
            before = tm.solve(foreign_recipe(trial, recipe).build(), trial.other, max_iterations=20, seed=1)
            facts["start"] = model.energy(before.labels)
            return {"init": before}, ["not worse than init"]
        case "threads":
            facts["before"] = tm.solve(model, method, **arguments, threads=1)
            return {"threads": 2}, ["same labels", "same bound"]
        case "plan":
            plan = facts["plan"] = tm.prepare(model, method, **arguments)
            facts["before"] = tm.solve(
                model, method, init=plan.solve(unaries=other_unaries(trial, recipe)), **arguments
            )
            return {}, ["same labels", "same bound"]
        case "again" | "together":
            facts["before"] = tm.solve(model, method, **arguments)
            return {}, ["same labels", "same bound"]
        case "grown":
            facts["before"] = tm.solve(model, method, **arguments)
            half = len(recipe.calls) // 2
            facts["model"] = recipe.with_calls(recipe.calls[:half]).build()
            tm.solve(facts["model"], method, **arguments)
            recipe.with_calls(recipe.calls[half:]).add_to(facts["model"])
            return {}, ["same labels", "same bound"]
    facts["before"] = tm.solve(model, method, **arguments)
    twin = twin_of(trial, recipe)
    facts["model"] = twin.recipe.build()
    return {}, _twin_checks(twin)


def own_unaries(model: tm.Model) -> list[list[float]]:
    """The unaries of a model, one list a variable."""
    return [model.unaries[a:b].tolist() for a, b in zip(model.offset[:-1], model.offset[1:], strict=True)]


def other_unaries(trial: Trial, recipe: Recipe) -> list[list[float]]:
    """Unaries that are not the model's."""
    rng = np.random.default_rng(trial.seed)
    return [rng.integers(-2, 3, size=c).astype(float).tolist() for c in recipe.cards]


@contextmanager
def beside(model: tm.Model, method: str) -> Iterator[None]:
    """Another run in a second thread."""

    def run() -> None:
        with suppress(tm.ModelError):  # not every method takes every model
            tm.solve(model, method, max_iterations=20, threads=1)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _twin_checks(twin: Twin) -> list[str]:
    if twin.subset:
        return ["part is not better than the whole"]
    checks = ["twins agree on the optimum", "twins do not contradict each other"]
    return checks + (["exact twins have the same status", "exact twins have the same energy"] if twin.same else [])


def without_option(trial: Trial, name: str) -> Trial:
    """The trial with one option or argument left at its default."""
    return replace(
        trial,
        options={k: v for k, v in trial.options.items() if k != name},
        arguments={k: v for k, v in trial.arguments.items() if k != name},
    )
