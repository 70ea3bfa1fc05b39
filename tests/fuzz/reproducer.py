"""A failure as a script that needs only the library: the model in numbers, the call, and the line that is false."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass

import numpy as np

import tightmap as tm

from .checks import CHECKS, close
from .oracle import Oracle
from .recipe import Recipe
from .trials import (
    Broken,
    Trial,
    foreign_recipe,
    known,
    other_unaries,
    own_unaries,
    start_labels,
    start_vectors,
    suited,
    twin_of,
)
from .twins import TWINS, dense


@dataclass(frozen=True)
class Failure:
    """What failed, where it came from, and the model as small as it is by now."""

    seed: int
    case: int
    index: int
    trial: Trial
    recipe: Recipe
    broken: Broken

    @property
    def file_name(self) -> str:
        slug = re.sub(r"[^a-z]+", "-", self.broken.check.lower()).strip("-")
        return f"{self.trial.method}-{slug}-{self.seed}-{self.case}-{self.index}.py"

    def script(self) -> str:
        trial, check = self.trial, self.broken.check
        line = CHECKS.get(check, "")
        again = f"python -m tests.fuzz --seed {self.seed} --case {self.case} --methods {trial.method}"
        head = f'"""{check}: {trial}\n\n{self.broken.message}\nFound by {again}, trial {self.index}.\n"""\n'
        parts = [
            head,
            _imports(line),
            suited(trial, self.recipe).source(),
            _solve(trial, self.recipe),
            _optimum(line),
            _facts(self),
        ]
        if line:
            parts += ["print(result)", f"assert {line}"]
        return "\n".join(part for part in parts if part) + "\n"


def _imports(line: str) -> str:
    names = ", ".join(status.name for status in tm.Status)
    lines = ["from itertools import pairwise, product", "from math import inf", "", "import numpy as np", ""]
    lines += ["import tightmap as tm", ""]
    if any(status.name in line for status in tm.Status):
        lines.append(f"{names} = tm.Status")
    if "close(" in line:
        lines += ["", inspect.getsource(close), ""]
    return "\n".join(lines)


def _solve(trial: Trial, recipe: Recipe) -> str:
    """The calls of solve(), as trials.judge makes them."""
    same = {key: repr(value) for key, value in (trial.arguments | trial.options).items()}
    extra: dict[str, str] = {}
    lines = ["seen = []"]
    if trial.watched:
        extra = {"callback": "seen.append", "trace": "True"}
    if trial.kind == "stop":
        extra = {"callback": "lambda info: seen.append(info) or len(seen) >= 2"}
    elif trial.kind == "init":
        lines += [f"init = {start_labels(trial, recipe)}", "start = model.energy(init)"]
        extra["init"] = "init"
    elif trial.kind == "relaxed":
        extra["init"] = repr(start_vectors(trial, recipe))
    elif trial.kind == "warm":
        lines.append(_call("before", trial.other, {"max_iterations": "20", "seed": "1"}))
        extra["init"] = "before"
    elif trial.kind == "foreign":
        lines += ["# another model of the same variables", foreign_recipe(trial, recipe).source("other")]
        lines.append(_call("before", trial.other, {"max_iterations": "20", "seed": "1"}, "other"))
        lines.append("start = model.energy(before.labels)")
        extra["init"] = "before"
    elif trial.kind == "plan":
        prepared = {"method": repr(trial.method), **same}
        lines += [
            f"plan = tm.prepare(model, {_keywords(prepared)})",
            f"first = plan.solve(unaries={other_unaries(trial, recipe)})",
            _call("before", trial.method, same | {"init": "first"}),
            f"result = plan.solve(unaries={own_unaries(recipe.build())}, **dict({_keywords(extra)}))",
        ]
        return "\n".join(lines)
    elif trial.kind != "plain":
        lines.append(_call("before", trial.method, same | ({"threads": "1"} if trial.kind == "threads" else {})))
        if trial.kind == "threads":
            extra["threads"] = "2"
    if trial.kind == "grown":
        half = len(recipe.calls) // 2
        lines += ["# the same model, solved before it is complete", recipe.with_calls(recipe.calls[:half]).source()]
        lines.append(_call("early", trial.method, same))
        lines += recipe.with_calls(recipe.calls[half:]).lines()
    if trial.kind in TWINS:
        lines += [f"# the same model, {trial.kind}", twin_of(trial, recipe).recipe.source()]
    if trial.kind == "together":
        lines += [
            "from threading import Thread",
            recipe.source("other"),
            f"thread = Thread(target=tm.solve, args=(other, {trial.other!r}),"
            " kwargs={'max_iterations': 20, 'threads': 1})",
            "thread.start()",
        ]
        return "\n".join([*lines, _call("result", trial.method, same | extra), "thread.join()"])
    return "\n".join([*lines, _call("result", trial.method, same | extra)])


def _keywords(given: dict[str, str]) -> str:
    return ", ".join(f"{k}={v}" for k, v in given.items())


def _call(name: str, method: str, given: dict[str, str], model: str = "model") -> str:
    return f"{name} = tm.solve({', '.join([model, repr(method), _keywords(given)])})"


def _optimum(line: str) -> str:
    if "optimum" not in line:
        return ""
    return "optimum = min(model.energy(list(x)) for x in product(*map(range, model.cardinalities)))"


def _facts(failure: Failure) -> str:
    """The numbers that the line needs and the script does not work out."""
    line = CHECKS.get(failure.broken.check, "")
    numbers, _ = known(failure.trial, failure.recipe, Oracle(failure.recipe))
    lines = [f"{name} = {value!r}" for name, value in numbers.items() if re.search(rf"\b{name}\b", line)]
    if "summed" in line:
        solved = twin_of(failure.trial, failure.recipe).recipe if failure.trial.kind in TWINS else failure.recipe
        twin = dense(solved, np.random.default_rng(0)).recipe
        lines += ["# the same model, all costs as tables", twin.source("plain")]
        lines.append("summed = plain.energy(result.labels)")
    return "\n".join(line for line in lines if not line.startswith("optimum"))
