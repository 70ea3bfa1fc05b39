"""What ``tightmap solve`` writes: JSON, labels and trace, then the summary, and at last the picture."""

from __future__ import annotations

import csv
import io
import json
import math
from functools import partial
from typing import TYPE_CHECKING, Any

from tightmap.cli.outputs import STDOUT, Session, named, plain_path

if TYPE_CHECKING:
    from tightmap.model.model import Model
    from tightmap.result import Result

TRACE_COLUMNS = ["iteration", "elapsed", "energy", "lower_bound"]


class SolveOutputs:
    """The files of one run, each by the name of its option; None for those that are not asked for."""

    def __init__(
        self, session: Session, json_path: str | None, labels: str | None, trace: str | None, plot: str | None
    ) -> None:
        self.session = session
        self.json, self.labels, self.trace, self.plot = map(plain_path, (json_path, labels, trace, plot))

    def check(self, inputs: dict[str, str | None]) -> None:
        """Refuse, before the model is read, what could not be written."""
        files = {"--json": self.json, "--labels": self.labels, "--trace": self.trace, "--plot": self.plot}
        self.session.check(files, inputs)
        if self.plot is not None:
            from tightmap.view.plot import check_format

            with named("--plot"):
                check_format(self.plot)

    def write(self, model: Model, path: str, result: Result, seed: int, threads: int | None) -> None:
        """JSON, labels and trace: one that fails leaves the others complete."""

        def record(target: str) -> None:
            content = {"model": shape(model, path)} | outcome(result, seed, threads)
            self.session.put(target, json.dumps(content) + "\n")

        def labels(target: str) -> None:
            if target == STDOUT:
                self.session.put(target, " ".join(map(str, result.labels.tolist())) + "\n")
            else:
                write_labels(result.labels, target)

        def trace(target: str) -> None:
            self.session.put(target, trace_table(result))

        from tightmap.io import write_labels

        wanted = (("--json", self.json, record), ("--labels", self.labels, labels), ("--trace", self.trace, trace))
        for name, target, work in wanted:
            if target is not None:
                self.session.attempt(name, target, partial(work, target))

    def summarise(self, result: Result, quiet: bool) -> None:
        """On standard output, or beside it where that carries one of the outputs."""
        if STDOUT not in (self.json, self.labels, self.trace):
            self.session.say(result.summary() + "\n")
        elif not quiet:
            self.session.remark(result.summary())

    def draw(self, result: Result, interrupted: bool) -> None:
        if self.plot is None:
            return
        from tightmap.view import plot as plots

        target, guard = self.plot, self.session.guard
        if interrupted:
            self.session.complain(f"--plot {target}: not drawn, interrupted")
            return
        guard.farewell = f"tightmap: --plot {target}: not drawn, interrupted"  # the picture alone is lost
        self.session.attempt("--plot", target, lambda: plots.save(plots.convergence(result), target))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def shape(model: Model, path: str) -> dict[str, Any]:
    return {
        "path": path,
        "variables": model.num_variables,
        "factors": model.num_factors,
        "max_order": model.max_order,
        "max_labels": model.max_labels,
    }


def outcome(result: Result, seed: int, threads: int | None) -> dict[str, Any]:
    from tightmap.bench.records import clean
    from tightmap.runtime import parallel

    return {
        "method": result.method,
        "options": clean(result.options),
        "seed": seed,
        "threads": threads or parallel.available(),
        "status": result.status.name,
        "energy": _finite(result.energy),
        "lower_bound": _finite(result.lower_bound),
        "gap": _finite(result.gap),
        "feasible": result.feasible,
        "iterations": result.iterations,
        "elapsed": result.elapsed,
        "labels": result.labels.tolist(),
    }


def trace_table(result: Result) -> str:
    """One line per recorded iteration; the columns of the method behind those that all methods have."""
    columns = list(TRACE_COLUMNS)
    for row in result.trace:
        columns += [c for c in row if c not in columns]
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(result.trace)
    return out.getvalue()
