"""Kinds of factor from outside the package: a block that is known by a function of its labels.

    @dataclass(frozen=True, eq=False)
    class Parity(CustomBlock):
        penalties: FloatArray                                # one per factor: see per_row

        name: ClassVar[str] = "parity"
        per_row: ClassVar[tuple[str, ...]] = ("penalties",)

        def costs(self, rows, labels):                       # (q,) factors, (q, k) labels -> (q,) costs
            return self.penalties[rows] * (labels.sum(axis=1) % 2)

    model.add_custom(Parity([[0, 1, 2]], [1.0], np.array([3.0])))

Kernels are compiled for the kinds of ``kinds.py`` and kept on disk, so a kind from outside has none of its own: the
canonical form turns its factors into tables, recognised where they are Potts or the like, or into lists of exceptions
(canonical/lower.py).  Every method takes them then; what is lost is a closed form for factors too large for a table.
"""

from __future__ import annotations

import dataclasses
import inspect
from abc import abstractmethod
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tightmap.errors import ModelError, OptionError
from tightmap.factors.block import Block, numbered_labellings, weighted
from tightmap.factors.kinds import row_named
from tightmap.graph.graph import FloatArray, IntArray

GROUP = "tightmap.kinds"
LABELLINGS = 1 << 18  # labellings for which costs are asked at a time

_registered: dict[str, type[CustomBlock]] = {}


@dataclass(frozen=True, eq=False)
class CustomBlock(Block):
    """Base of blocks from outside: a frozen dataclass with a ``name``, its arrays as fields, and ``costs``.

    Arrays with one entry per factor are named in ``per_row``; factors that agree in them, and in their label counts,
    are taken to have the same table.  ``weights`` are not part of the costs.
    """

    name: ClassVar[str]

    @abstractmethod
    def costs(self, rows: IntArray, labels: IntArray) -> FloatArray:
        """(q,) costs of factors ``rows`` (q,) at ``labels`` (q, k), weights left out; +inf forbids a labelling."""

    def evaluate(self, labels: npt.NDArray[np.integer]) -> FloatArray:
        costs = self.checked_costs(np.arange(len(self)), np.asarray(labels, dtype=np.int64)[self.scopes])
        self.check_weights(np.flatnonzero(np.isinf(costs)))
        return weighted(self.weights, costs)

    def dense(self, rows: IntArray, shape: tuple[int, ...]) -> FloatArray:
        tables = self.tables(rows, shape)
        self.check_weights(np.asarray(rows)[np.isinf(tables.reshape(len(rows), -1)).any(axis=1)])
        return weighted(self.weights[rows].reshape((-1,) + (1,) * len(shape)), tables)

    def tables(self, rows: IntArray, shape: tuple[int, ...]) -> FloatArray:
        """(len(rows), *shape) costs of all labellings, weights left out."""
        size = int(np.prod(shape, dtype=np.int64))
        out = np.empty(len(rows) * size)
        for begin in range(0, len(out), LABELLINGS):
            at = np.arange(begin, min(begin + LABELLINGS, len(out)))
            labels = numbered_labellings(at % size, shape)
            out[at] = self.checked_costs(np.asarray(rows, dtype=np.int64)[at // size], labels)
        return out.reshape(len(rows), *shape)

    def check_weights(self, hard: IntArray) -> None:
        """Refuse a negative weight of rows that forbid something."""
        if (self.weights[hard] < 0.0).any():
            raise ModelError(f"{self.name}: a factor with +inf cannot have a negative weight")

    def checked_costs(self, rows: IntArray, labels: IntArray) -> FloatArray:
        """``costs``, once it is certain that they are costs."""
        found = self.costs(rows, labels)
        try:
            if np.iscomplexobj(found):
                raise TypeError("complex numbers are no costs")
            costs = np.asarray(found, dtype=np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise ModelError(f"{self.name}: costs must return numbers ({error})") from None
        if costs.shape != rows.shape:
            raise ModelError(f"{self.name}: costs of {len(rows)} labellings have the shape {costs.shape}")
        wrong = ~(costs > -np.inf)
        if wrong.any():
            q = int(np.argmax(wrong))
            scope = tuple(self.scopes[rows[q]].tolist())
            raise ModelError(
                f"{self.name}: the factor on variables {scope} costs {costs[q]} at labels "
                f"{tuple(labels[q].tolist())}; finite numbers and +inf are legal"
            )
        return costs

    @property
    def parameters(self) -> dict[str, npt.NDArray[Any]]:
        return {name: np.asarray(getattr(self, name)) for name in parameter_names(type(self))}


def parameter_names(cls: type[CustomBlock]) -> list[str]:
    """The arrays of a kind beside scopes and weights."""
    return [field.name for field in dataclasses.fields(cls) if field.name not in ("scopes", "weights")]


def check_kind(cls: type, what: str) -> None:
    """Refuse a class that is no kind of factor, with the reason."""
    if not (inspect.isclass(cls) and issubclass(cls, CustomBlock) and dataclasses.is_dataclass(cls)):
        raise OptionError(f"{what}: expected a dataclass that derives from CustomBlock, got {cls!r}")
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(cls.__abstractmethods__))
        raise OptionError(f"{what}: {cls.__name__} does not define {missing}")
    name = getattr(cls, "name", None)
    if not isinstance(name, str) or not 0 < len(name) <= 32:
        raise OptionError(f"{what}: {cls.__name__} needs a name of at most 32 characters, a class variable")
    if row_named(name) is not None:
        raise OptionError(f"{what}: {name!r} is a kind of tightmap itself; choose another name")
    unknown = sorted(set(cls.per_row) - set(parameter_names(cls)))
    if unknown:
        raise OptionError(f"{what}: {cls.__name__} has no field {unknown[0]!r}, which per_row names")


def register_kind(cls: type[CustomBlock]) -> type[CustomBlock]:
    """Make a kind of factor known by its name, to files; returns the class, so that it can be used as a decorator.

    Models take blocks of kinds that nobody has registered, too.
    """
    check_kind(cls, "register_kind")
    _registered[cls.name] = cls
    return cls


@cache
def _entry_points() -> dict[str, metadata.EntryPoint]:
    return {point.name: point for point in metadata.entry_points(group=GROUP)}


def custom_kind(name: str) -> type[CustomBlock] | None:
    """The kind of that name: a registered one, or one that an installed package brings."""
    if name not in _registered and name in _entry_points():
        try:
            register_kind(_entry_points()[name].load())
        except (ImportError, AttributeError) as error:
            raise OptionError(f"kind of factor {name!r} cannot be loaded: {error}") from None
    return _registered.get(name)
