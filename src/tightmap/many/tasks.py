"""One model to solve, in a form that another process understands, and what makes two of them the same."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import os
import pickle
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tightmap.driver import left_of, solve
from tightmap.errors import ModelError
from tightmap.io import read
from tightmap.model.model import Model
from tightmap.result import Result

WITHOUT_EFFECT = ("threads", "keep_state")  # options that change nothing about what is found


@dataclass(frozen=True)
class Outcome:
    """What became of one model: its place in the sequence, and either a result or the error that it gave.

    ``index, result, error = outcome`` works as well.
    """

    index: int
    result: Result | None
    error: Exception | None = None

    def __iter__(self) -> Iterator[Any]:
        return iter((self.index, self.result, self.error))

    def get(self) -> Result:
        """The result; raises the error where there is none."""
        if self.result is None:
            assert self.error is not None
            raise self.error
        return self.result


class Builder(NamedTuple):
    """A function without arguments that makes a model, pickled."""

    pickled: bytes


@dataclass(frozen=True)
class Task:
    """A model, or where to find it, with everything that solve() is to be told."""

    index: int
    item: Model | str | Builder
    method: Any  # what finds the method in another process
    name: str  # what the user calls the method
    options: dict[str, Any]
    key: str = ""  # its fingerprint, where somebody remembers results


def prepare_item(item: Any) -> Model | str | Builder:
    """What a worker can use: paths and functions stay what they are as long as another process can follow them."""
    if isinstance(item, Model):
        return item
    if isinstance(item, str | os.PathLike):
        return os.fspath(item)
    if not callable(item):
        raise ModelError(
            f"expected a Model, the path of a model or a function that makes one, got {type(item).__name__}"
        )
    try:
        return Builder(_portable_pickle(item))
    except Exception:  # a lambda, a function of the main script: only this process knows it
        return _made_by(item)


class _Portable(pickle.Pickler):
    """Refuses what only this process has: the worker does not run the main script."""

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, type | types.FunctionType) and thing.__module__ in ("__main__", "__mp_main__"):
            raise pickle.PicklingError(f"{thing.__qualname__} is part of the main script")
        return NotImplemented


def _portable_pickle(thing: Any) -> bytes:
    stream = io.BytesIO()
    _Portable(stream, protocol=5).dump(thing)
    return stream.getvalue()


def _made_by(function: Callable[[], Any]) -> Model:
    model = function()
    if not isinstance(model, Model):
        name = getattr(function, "__name__", type(function).__name__)
        raise ModelError(f"{name}() must return a tightmap.Model, got {type(model).__name__}")
    return model


def perform(task: Task) -> Result:
    """Make the model and solve it; a limit on everything counts both."""
    item, options, begin = task.item, task.options, time.perf_counter()
    if isinstance(item, Builder):
        item = _made_by(pickle.loads(item.pickled))
    elif isinstance(item, str):
        item = read(item)
    if "wall_limit" in options:
        options = options | {"wall_limit": left_of(options["wall_limit"], begin)}
    result = solve(item, task.method, **options)
    return result if result.method == task.name else replace(result, method=task.name)


def fingerprint(task: Task) -> str:
    """Equal for tasks that have the same result: the content of a model, the date of a file, the name of a function.

    A function counts by its name and its arguments; what it does is not looked into.
    """
    from tightmap import __version__

    sum_ = hashlib.blake2b(digest_size=16)
    item = task.item
    if isinstance(item, Model):
        _add_model(sum_, item)
    elif isinstance(item, Builder):
        sum_.update(item.pickled)
    else:
        try:
            facts = os.stat(item)
            sum_.update(f"{os.path.abspath(item)}\0{facts.st_size}\0{facts.st_mtime_ns}".encode(errors="surrogatepass"))
        except OSError:  # reading it will say what is wrong
            sum_.update(item.encode(errors="surrogatepass"))
    options = {key: value for key, value in task.options.items() if key not in WITHOUT_EFFECT}
    method = task.method if isinstance(task.method, str) else repr(task.method)
    plain = json.dumps([__version__, method, options], sort_keys=True, default=functools.partial(_described, sum_))
    sum_.update(plain.encode())
    return sum_.hexdigest()


def _described(sum_: Any, value: Any) -> str:
    """What JSON does not know: arrays go into the sum as they are."""
    if isinstance(value, Result):  # with its seconds: another run has another state
        _add_array(sum_, value.labels)
        return json.dumps(value.to_dict(labels=False))
    array = np.asarray(value)
    if array.dtype == object:
        return repr(value)
    _add_array(sum_, array)
    return f"{array.shape} {array.dtype}"


def _add_array(sum_: Any, array: np.ndarray) -> None:
    sum_.update(f"{array.shape}{array.dtype.str}".encode())
    sum_.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _add_model(sum_: Any, model: Model) -> None:
    sum_.update(repr((model.constant, model.grid_shape)).encode())
    _add_array(sum_, model.cardinalities)
    _add_array(sum_, model.clamped)
    if model.given_unaries is not None:
        _add_array(sum_, model.given_unaries.astype(np.float64, copy=False))
    for block in model.blocks:
        sum_.update(type(block).__name__.encode())
        for array in (block.scopes, block.weights, *block.parameters.values()):
            _add_array(sum_, np.asarray(array))
