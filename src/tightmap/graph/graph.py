"""Graph: the frozen, canonical arrays that the kernels see, and the way back to the user's variables.

A Model is what the user wrote; a Graph is what it means.  ``canonical.build_graph`` makes one from the other, once:
variables with a single label are folded away, unaries and constants are collected, scopes are sorted, duplicates
are merged, structure is recognised, and +inf becomes a safe large number.  After that every energy is

    E(x) = constant + sum_i unary_i(x_i) + sum_f weight_f * table_f(x_scope(f)),

with every factor on two or more distinct variables of at least two labels each.  The user's energy is
2^-power E(x) + shift (up to ``slack``): see ``user_energy`` and ``user_bound``.

The Graph of a large image is a Lattice (lattice.py): its arrays are written out when they are first asked for, and
whoever asks for ``n``, ``m``, ``unary`` and the like instead does without them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from tightmap.graph.lattice import Lattice
from tightmap.graph.pixel_costs import both
from tightmap.runtime.lazy import lazy

T = TypeVar("T")
SMALL = 1 << 12  # labels and members of factors of a graph of which everything may be kept
SHELF, STRUCTURE = "_shelf", "_structure"  # where a Graph keeps what others have made of it

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


class Kind(IntEnum):
    """Kinds of factor, and where each keeps its parameters (P = params[param[f]:], I = ints[iparam[f]:])."""

    DENSE = 0  # weight * table; P = the table, C order over the scope
    POTTS = 1  # weight * [a != b]; no parameters
    LINEAR = 2  # weight * min(|a - b|, P[0]); an untruncated one has a limit no difference reaches
    QUADRATIC = 3  # weight * min((a - b)^2, P[0])
    PN_POTTS = 4  # weight * (P[1 + l] if all labels equal l else P[0]); P has 1 + (smallest label count) entries
    PATTERN = 5  # weight * P[rank of the partition of the positions into equal labels] (factors/pattern_ranks.py)
    SPARSE = 6  # weight * (P[1 + e] if the C-order key equals I[1 + e] else P[0]); I[0] = number of keys, sorted
    SECOND_DIFFERENCE = (
        7  # weight * min(|v_a - 2 v_b + v_c|, P[0]); v of variable i, label s = params[I[0] + offset[i] + s]
    )


class Arrays(NamedTuple):
    """Flat arrays, one Numba type for every model (and one more for the models of pairs, see ``PairArrays``).

    Variables are 0..n-1, factors 0..m-1.  ``scope[scope_start[f]:scope_start[f + 1]]`` are the variables of factor f in
    ascending order (except SECOND_DIFFERENCE, whose middle variable is at position 1 and whose ends are ascending).
    Factors are sorted by (arity, kind, scope).  ``adj_*[adj_start[i]:adj_start[i + 1]]`` lists the factors of
    variable i, ascending, and the position of i in each.
    """

    cards: npt.NDArray[np.int32]  # (n,) labels per variable, all >= 2
    offset: IntArray  # (n + 1,) unary of variable i is unary[offset[i]:offset[i + 1]]
    unary: FloatArray  # (offset[n],)
    kind: npt.NDArray[np.uint8]  # (m,)
    scope_start: IntArray  # (m + 1,)
    scope: npt.NDArray[np.int32]  # (scope_start[m],)
    weight: FloatArray  # (m,)
    param: IntArray  # (m,) offset into params
    iparam: IntArray  # (m,) offset into ints
    params: FloatArray
    ints: IntArray
    adj_start: IntArray  # (n + 1,)
    adj_factor: npt.NDArray[np.int32]
    adj_pos: npt.NDArray[np.int8]


class PairArrays(Arrays):
    """The same of a model whose factors are all pairs, given by dense tables, Potts or label differences.

    For Numba it is a type of its own, so that kernels on it leave out every other kind (factors/dispatch.py).
    """


def _ldexp(value: float, power: int) -> float:
    """value * 2^power, infinite instead of an error where that is too large."""
    try:
        return math.ldexp(value, power)
    except OverflowError:
        return math.copysign(math.inf, value)


class _Later:
    """Stands for what a Graph with a lattice makes when it is asked for."""


LATER: Any = _Later()


@dataclass(frozen=True, eq=False)
class Graph:
    """Canonical arrays plus everything about them that is not needed inside a kernel."""

    arrays: Arrays
    constant: float  # 0.0, or more than any finite cost where the user's own constant is +inf
    variables: IntArray  # (n,) the user's index of each canonical variable
    fixed: IntArray  # (number of user variables,) label of the variables that were folded away, -1 for the others
    grid_shape: tuple[int, int] | None  # (H, W) when the user said so or the edges show it; canonical i = r * W + c
    quantum: float  # every finite energy is a multiple of it; 0.0 when none is known
    slack: float  # upper bound on |canonical energy - user's energy| from recognising rounded structure
    hard: float  # the finite cost that stands for +inf, 0.0 when the model has none
    hard_threshold: float  # feasible labellings are below; a bound above it proves that there are none (else inf)
    hopeless: float  # halfway from there to the least energy of a labelling with a forbidden entry (else inf)
    soft_range: float  # with hard costs: the largest finite cost of one factor above its smallest one or zero (else 0)
    unary_hard: npt.NDArray[np.bool_] | None  # which unary entries were +inf
    params_hard: npt.NDArray[np.bool_] | None  # which table entries were +inf
    power: int = 0  # costs are counted in units of 2^-power of the user's (canonical/units.py)
    typical: float = 1.0  # the median range of a factor or of the unaries of a variable
    shift: float = 0.0  # the user's constant, and what became constant on the way: it concerns no solver
    lattice: Lattice | None = None  # then ``arrays``, ``variables`` and ``fixed`` may be LATER

    def __post_init__(self) -> None:
        if self.lattice is not None and self.__dict__["arrays"] is not LATER:
            self.__dict__["lattice"] = None  # arrays that somebody has changed (dataclasses.replace) are what counts
        for name in ("arrays", "variables", "fixed"):
            if self.__dict__[name] is LATER:
                del self.__dict__[name]

    def __getstate__(self) -> dict[str, Any]:
        """For pickles: with all arrays, a lattice knows them by the model it came from."""
        if self.lattice is None:
            return {name: value for name, value in self.__dict__.items() if name not in (SHELF, STRUCTURE)}
        made = {"arrays": self.arrays, "variables": self.variables, "fixed": self.fixed, "lattice": None}
        return self.__dict__ | made

    if not TYPE_CHECKING:  # for type checkers these are plain attributes, and others are none

        def __getattr__(self, name: str) -> Any:
            """Only for what is not there yet."""
            lattice = self.__dict__.get("lattice")
            if lattice is None or name not in ("arrays", "variables", "fixed"):
                raise AttributeError(f"a Graph has no {name!r}")
            if name == "arrays":
                value = lattice.write_out()
                if len(lattice.pixels.single):  # with these in double precision the others are to be gone
                    double, single = both(value.unary)
                    pixels = lattice.pixels._replace(unary=double, single=single)
                    self.__dict__["lattice"] = replace(lattice, pixels=pixels)
            elif name == "variables":
                value = np.arange(lattice.n)
            else:
                value = np.full(lattice.n, -1, dtype=np.int64)
            self.__dict__[name] = value
            return value

    def kept(self, what: str, make: Callable[[], T]) -> T:
        """make(), which depends on the graph alone and is never changed; of a small graph it is made once and kept.

        There a method would spend longer on getting ready than on solving, and what is kept takes no room.
        """
        if self.lattice is not None or len(self.arrays.unary) + len(self.arrays.scope) > SMALL:
            return make()
        shelf = self.__dict__.setdefault(SHELF, {})
        if what not in shelf:
            shelf[what] = make()
        found: T = shelf[what]
        return found

    def kept_structure(self, what: str, make: Callable[[], T]) -> T:
        """make(), which depends on nothing but structure and weights, and is never changed.

        Graphs of one plan (``prepare``) that differ in their unaries alone make it once.
        """
        shelf = self.__dict__.get(STRUCTURE)
        if shelf is None:
            return make()
        if what not in shelf:
            shelf[what] = make()
        found: T = shelf[what]
        return found

    def take(self, what: str) -> Any:
        """What the run before has left in the plan of this graph for the next one, which may change it; or None."""
        shelf = self.__dict__.get(STRUCTURE)
        return None if shelf is None else shelf.pop(what, None)

    def leave(self, what: str, value: Any) -> None:
        """Leave something for the next run with the same structure and weights, where there is a plan."""
        shelf = self.__dict__.get(STRUCTURE)
        if shelf is not None:
            shelf[what] = value

    @property
    def planned(self) -> bool:
        """Whether graphs with the same structure and weights, and other unaries, are likely to follow."""
        return self.__dict__.get(STRUCTURE) is not None

    @property
    def n(self) -> int:
        return len(self.arrays.cards) if self.lattice is None else self.lattice.n

    @property
    def m(self) -> int:
        return len(self.arrays.kind) if self.lattice is None else self.lattice.edges

    @property
    def unary(self) -> npt.NDArray[Any]:
        """All unary costs, label s of variable i at arrays.offset[i] + s; of a large image maybe in single precision,
        where that is exact (pixel_costs.py)."""
        return self.arrays.unary if self.lattice is None else self.lattice.pixels.costs

    @property
    def listed(self) -> bool:
        """Whether ``arrays`` are there; those of a large image take some time and memory when first asked for."""
        return self.lattice is None or "arrays" in self.__dict__

    @property
    def unlisted(self) -> bool:
        """Whether to do without moves that need ``arrays``, which would take too much time and memory."""
        return self.lattice is not None and self.lattice.avoided and not self.listed

    @lazy
    def differences(self) -> bool:
        """All factors are Potts or differences of labels, and no weight is negative."""
        if self.lattice is not None:
            return bool(self.lattice.pixels.weight.min() >= 0.0)
        kinds = (Kind.POTTS, Kind.LINEAR, Kind.QUADRATIC)
        return bool(np.isin(self.arrays.kind, kinds).all() and (self.arrays.weight >= 0).all())

    @lazy
    def order(self) -> int:
        """Largest number of variables in a factor (1 without factors)."""
        if self.lattice is not None:
            return 2
        return int(np.diff(self.arrays.scope_start).max()) if self.m else 1

    @property
    def label_type(self) -> np.dtype[np.unsignedinteger]:
        """The smallest type that holds a label: for labellings that are kept, not worked on."""
        return np.min_scalar_type(max(self.max_labels - 1, 0))

    @lazy
    def max_labels(self) -> int:
        if self.lattice is not None:
            return self.lattice.pixels.labels
        return int(self.arrays.cards.max()) if self.n else 1

    @lazy
    def uniform(self) -> bool:
        """All variables have the same number of labels."""
        if self.lattice is not None:
            return True
        return self.n > 0 and bool((self.arrays.cards == self.arrays.cards[0]).all())

    @lazy
    def edges(self) -> npt.NDArray[np.int32]:
        """(m, 2) scopes of a pairwise graph."""
        if self.order > 2:
            raise ValueError("edges of a graph with factors of more than two variables")
        return self.arrays.scope.reshape(-1, 2)

    def original_scope(self, factor: int) -> tuple[int, ...]:
        """The user's variables in a factor, for messages to people."""
        a = self.arrays
        return tuple(int(self.variables[i]) for i in a.scope[a.scope_start[factor] : a.scope_start[factor + 1]])

    def lift(self, labels: npt.NDArray[np.integer]) -> IntArray:
        """Labels of all of the user's variables from labels of the canonical ones."""
        if self.lattice is not None or len(self.variables) == len(self.fixed):
            return np.array(labels, dtype=np.int64)
        full = self.fixed.copy()
        full[self.variables] = labels
        return full

    def restrict(self, labels: npt.NDArray[np.integer]) -> IntArray:
        """Labels of the canonical variables from labels of the user's ones."""
        if self.lattice is not None or len(self.variables) == len(self.fixed):
            return np.array(labels, dtype=np.int64).reshape(-1)
        return np.ascontiguousarray(np.asarray(labels, dtype=np.int64)[self.variables])

    def user_energy(self, value: float) -> float:
        """A canonical energy in the user's units."""
        return _ldexp(value, -self.power) + self.shift

    def user_bound(self, bound: float) -> float:
        """A canonical lower bound in the user's units, rounded down."""
        if not math.isfinite(bound):
            return bound
        unscaled = _ldexp(bound, -self.power)
        if _ldexp(unscaled, self.power) > bound:
            unscaled = math.nextafter(unscaled, -math.inf)
        total = unscaled + self.shift
        # the rounding error of a sum is itself a floating-point number, and this is it (Knuth)
        part = total - unscaled
        error = (unscaled - (total - part)) + (self.shift - part)
        return total if error >= 0.0 else math.nextafter(total, -math.inf)

    def magnitude(self, value: float) -> float:
        """What a change of this energy is measured by: its size, and at least that of a typical cost."""
        return max(self.typical, abs(value - self.constant))

    @property
    def nbytes(self) -> int:
        if "arrays" not in self.__dict__ and self.lattice is not None:
            return self.lattice.pixels.costs.nbytes + self.lattice.pixels.weight.nbytes
        return sum(int(a.nbytes) for a in self.arrays)
