"""Model: what the user builds, in vectorised calls.

A model is a list of label counts, one vector of unary costs, a constant and blocks of factors.  Nothing is copied or
expanded that need not be: tables that are shared stay shared, structured factors stay structured.  Every call checks
its input once and either takes all of it or raises a ModelError and takes none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import fields, replace
from functools import cache
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tightmap.errors import ModelError
from tightmap.factors.block import PART, Block
from tightmap.factors.dense import DenseBlock
from tightmap.factors.difference import LinearBlock, QuadraticBlock
from tightmap.factors.pn_potts import PnPottsBlock
from tightmap.factors.potts import PottsBlock
from tightmap.factors.repeated import folded, repeated, unfolded
from tightmap.factors.second_difference import SecondDifferenceBlock
from tightmap.factors.sparse import SparseBlock
from tightmap.graph.graph import FloatArray, Graph, IntArray
from tightmap.graph.pixel_costs import WORTH, in_single
from tightmap.model.checks import (
    add_costs,
    as_array,
    check_costs,
    check_evidence,
    check_labels,
    check_limits,
    check_number,
    check_rows,
    check_scopes,
    check_variables,
    check_weights,
    finite_products,
    listed,
    own_arrays,
)
from tightmap.runtime.memory import require

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tightmap.factors.custom import CustomBlock

UNARY_ENTRIES = 1 << 20  # unary costs of shared tables that are written out at a time
MOST_DIMENSIONS = 32  # of a grid; arrays of older versions of NumPy have no more
STEPS = 1 << 20  # to neighbours on a grid: a cube of 13 dimensions has nearly as many corners and faces
SPARSE_ARITY = 64  # more than two labels each would be more labellings than can be numbered


def _axes_first(step: tuple[int, ...]) -> tuple[int, list[int], list[int]]:
    """Sorts steps on a grid: along the last axis, along the one before, ..., then the diagonals."""
    return sum(map(abs, step)), [abs(v) for v in step], [-v for v in step]


def _nothing(count: int) -> IntArray:
    """-1 for so many variables, without an array of them (read-only)."""
    return repeated(np.array(-1), count)


@cache
def neighbourhoods(dimensions: int) -> dict[int, int]:
    """How many coordinates may change at once, by the number of neighbours that this makes."""
    counts = [math.comb(dimensions, j) * 2**j for j in range(1, dimensions + 1)]
    return {sum(counts[:k]): k for k in range(1, dimensions + 1)}


@cache
def grid_steps(dimensions: int, reach: int) -> list[tuple[int, ...]]:
    """From the first to the second end of the edges of a grid, in the order in which ``Model.edges`` lists them."""
    steps = []
    for changed in range(1, reach + 1):
        for axes in combinations(range(dimensions), changed):
            for signs in product((1, -1), repeat=changed - 1):  # the first coordinate that changes, grows
                step = [0] * dimensions
                for axis, sign in zip(axes, (1, *signs), strict=True):
                    step[axis] = sign
                steps.append(tuple(step))
    return sorted(steps, key=_axes_first)


class Model:
    """A discrete Markov random field: minimise the sum of the costs of all factors.

    Parameters
    ----------
    cardinalities : (n,) integers, the number of labels of every variable (at least 1).
    """

    def __init__(self, cardinalities: npt.ArrayLike) -> None:
        cards = as_array(cardinalities, "cardinalities")
        if cards.size == 0:
            cards = np.zeros(0, dtype=np.int64)
        if cards.ndim != 1 or cards.dtype.kind not in "iu":
            raise ModelError(
                f"cardinalities: expected a one-dimensional array of integers, got shape {cards.shape}, {cards.dtype}"
            )
        if len(cards) and cards.min() < 1:
            i = int(np.argmax(cards < 1))
            raise ModelError(f"cardinalities: variable {i} has {int(cards[i])} labels, at least 1 is needed")
        if len(cards) and (int(cards.max()) >= 2**31 or len(cards) >= 2**31):
            raise ModelError("cardinalities: more than 2^31 variables or labels")
        labels = float(cards.sum(dtype=np.float64))
        require(8.0 * labels + 32.0 * len(cards), f"a model of {len(cards)} variables and {labels:.0f} labels")
        same = cards.dtype == np.int64 and cards.strides == (0,) and not cards.flags.writeable
        self.cardinalities: IntArray = cards if same else cards.astype(np.int64)  # of a grid, one number for all
        self._offset: IntArray | None = None  # made when it is asked for
        self.constant = 0.0
        self.grid_shape: tuple[int, int] | None = None  # of two dimensions, for the engines and files of images
        self._shape: tuple[int, ...] | None = None  # of a grid of another number of dimensions
        self.blocks: list[Block] = []
        self.clamped: IntArray = _nothing(len(cards))
        self._unaries: npt.NDArray[Any] | None = None  # flat; None while all are zero; in single precision, see below
        self._owned = True  # whether the unaries may be written in place: nobody else has seen the array
        self._made: dict[str, Graph] = {}  # the canonical form, another dict after every change

    @classmethod
    def grid(cls, *size: Any) -> Model:
        """A grid of variables in raster order: ``grid(height, width, labels)``, or ``grid(shape, labels)``.

        The second form takes any number of dimensions.  Add costs and ``model.edges()`` afterwards.
        """
        if len(size) == 3:
            shape, labels = size[:2], size[2]
        elif len(size) == 2 and isinstance(size[0], tuple | list):
            shape, labels = tuple(size[0]), size[1]
        else:
            raise ModelError(f"grid: expected (height, width, labels) or (shape, labels), got {len(size)} arguments")
        whole = [isinstance(v, int | np.integer) and not isinstance(v, bool) for v in (*shape, labels)]
        if not shape or not all(whole) or min(*shape, labels) < 1:
            raise ModelError(f"grid: sizes and labels must be whole numbers and at least 1, got {shape} and {labels!r}")
        count = math.prod(int(s) for s in shape)
        if count * int(labels) >= 2**62 or len(shape) > MOST_DIMENSIONS:
            raise ModelError(f"grid: more than 2^62 labels or {MOST_DIMENSIONS} dimensions are not supported")
        require(8.0 * count * labels, f"a grid of {' x '.join(map(str, shape))} variables with {labels} labels")
        model = cls(np.broadcast_to(np.int64(labels), count))
        if len(shape) == 2:
            model.grid_shape = (int(shape[0]), int(shape[1]))
        else:
            model._shape = tuple(int(s) for s in shape)
        return model

    # ------------------------------------------------------------------ reading

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Sizes of the grid that the variables are, None where they are none."""
        return self._shape if self.grid_shape is None else self.grid_shape

    @property
    def offset(self) -> IntArray:
        """(n + 1,) where the unary costs of every variable begin."""
        if self._offset is None:
            offset = np.zeros(len(self.cardinalities) + 1, dtype=np.int64)
            np.cumsum(self.cardinalities, out=offset[1:])
            self._offset = offset
        return self._offset

    def begins(self, some: slice) -> IntArray:
        """Where the unary costs of some variables begin; of a grid, without the list for all."""
        cards = self.cardinalities
        if self._offset is None and len(cards) and cards.strides == (0,):
            return int(cards[0]) * np.arange(*some.indices(len(cards)))
        return self.offset[:-1][some]

    @property
    def num_labels(self) -> int:
        """Labels of all variables together."""
        cards = self.cardinalities
        return int(cards[0]) * len(cards) if len(cards) and cards.strides == (0,) else int(self.offset[-1])

    @property
    def num_variables(self) -> int:
        return len(self.cardinalities)

    @property
    def num_factors(self) -> int:
        """Factors of two or more variables, as the user added them."""
        return sum(len(b) for b in self.blocks)

    @property
    def max_order(self) -> int:
        return max((b.arity for b in self.blocks), default=1 if self.num_variables else 0)

    @property
    def max_labels(self) -> int:
        return int(self.cardinalities.max(initial=0))

    @property
    def unaries(self) -> FloatArray:
        """Flat unary costs: label s of variable i at ``offset[i] + s`` (read only)."""
        view = self.flat_unaries().view()
        view.flags.writeable = False
        return view

    @property
    def given_unaries(self) -> npt.NDArray[Any] | None:
        """The array behind ``unaries``, None where the user gave none.

        Those of a large image are kept in single precision where that is exact, until somebody asks for them in double
        precision or adds to them.
        """
        return self._unaries

    @property
    def single(self) -> bool:
        """Whether the unaries are in single precision."""
        return self._unaries is not None and self._unaries.dtype == np.float32

    def kept_unaries(self) -> npt.NDArray[Any]:
        """As ``flat_unaries``, in the precision in which they are kept."""
        if not self.single:
            return self.flat_unaries()
        assert self._unaries is not None
        self._owned = False
        return self._unaries

    def flat_unaries(self) -> FloatArray:
        """The array behind ``unaries``, for the canonical form.

        It is shared, not copied, and never written in place.  It is not marked read-only because Numba would then
        compile every kernel twice: once for it and once for the arrays that a solver makes.
        """
        if self._unaries is None:
            self._unaries = np.zeros(self.num_labels)
        elif self.single:
            self._unaries = self._unaries.astype(np.float64)
        self._owned = False
        return self._unaries

    def _own_unaries(self) -> FloatArray:
        """The array behind ``unaries``, to be written in place: a copy if somebody may hold the present one."""
        if self._unaries is None:
            self._unaries = np.zeros(self.num_labels)
        elif self.single:
            self._unaries = self._unaries.astype(np.float64)
        elif not self._owned:
            self._unaries = self._unaries.copy()
        self._owned = True
        return self._unaries

    def edges(self, neighbours: int | None = None) -> IntArray:
        """(m, 2) pairs of neighbouring variables of a grid, the smaller index first.

        neighbours : 4 or 8 in two dimensions, 6, 18 or 26 in three; in any number d of them 2 d (along the axes, the
            default) or 3^d - 1 (all around).
        """
        shape = self.shape
        if shape is None:
            raise ModelError("edges: the model was not made by Model.grid, list the edges yourself")
        reach = neighbourhoods(len(shape))
        wanted = 2 * len(shape) if neighbours is None else neighbours
        if not isinstance(wanted, int | np.integer) or wanted not in reach:
            choice = " or ".join(map(str, reach))
            raise ModelError(f"edges: neighbours must be {choice} on this grid, got {neighbours}")
        if wanted > 2 * STEPS:
            raise ModelError(f"edges: {wanted} neighbours are more than {2 * STEPS}, list the edges yourself")
        index = np.arange(self.num_variables).reshape(shape)
        steps = grid_steps(len(shape), reach[wanted])
        sizes = [math.prod(max(0, n - abs(o)) for n, o in zip(shape, step, strict=True)) for step in steps]
        pairs = np.empty((sum(sizes), 2), dtype=index.dtype)  # filled in place: lists to be joined would be as large
        begin = 0
        for step, size in zip(steps, sizes, strict=True):
            tails = tuple(slice(max(0, -o), n - max(0, o)) for n, o in zip(shape, step, strict=True))
            heads = tuple(slice(max(0, o), n - max(0, -o)) for n, o in zip(shape, step, strict=True))
            for column, ends in enumerate((tails, heads)):
                pairs[begin : begin + size, column] = index[ends].ravel()
            begin += size
        return pairs

    def __getstate__(self) -> dict[str, Any]:
        """For pickles and copies: what the user gave.  A shallow copy shares its arrays, which nobody writes then."""
        self._owned = False
        state = self.__dict__ | {"blocks": list(self.blocks)}
        del state["_offset"], state["_made"]
        if not (self.clamped >= 0).any():
            del state["clamped"]
        return folded(state)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= unfolded(state) | {"_made": {}, "_offset": None}
        if "clamped" not in state:
            self.clamped = _nothing(len(self.cardinalities))

    def _sharing(self) -> Model:
        """copy.copy(self), with what follows from the cardinalities shared as well."""
        twin = object.__new__(type(self))
        self._owned = False
        twin.__dict__ |= self.__dict__ | {"_made": {}, "blocks": list(self.blocks)}
        return twin

    # ------------------------------------------------------------------ building

    def add_constant(self, cost: float) -> None:
        """Add a number to the energy of every labelling."""
        more = check_number(cost, "constant")
        if not np.isfinite(self.constant + more) and np.isfinite(self.constant) and np.isfinite(more):
            raise ModelError("constant: the constants add up to more than a number can hold")
        self.constant += more
        self._graph = None

    def add_unaries(self, costs: Any, nodes: npt.ArrayLike | None = None) -> None:
        """Add unary costs.

        costs : (n, S) when all these variables have S labels, else a list with one vector per variable; on a grid
            (height, width, S), or whatever its shape is, as well.
        nodes : (n,) the variables, all of them by default; a variable may appear several times (costs add up).
        """
        index: range | IntArray = range(self.num_variables)
        cards = self.cardinalities
        if nodes is not None:
            index = check_variables(nodes, self.num_variables, "add_unaries: nodes", 1)
            cards = cards[index]
        what = "add_unaries: costs"
        costs = listed(costs, what)
        if isinstance(costs, np.ndarray):
            worth = nodes is None and self._unaries is None and self.grid_shape is not None and costs.size >= WORTH
            single = in_single(costs) if worth else None
            array: npt.NDArray[Any] = check_costs(costs, what) if single is None else single
            if nodes is None and self.shape is not None and array.shape[:-1] == self.shape:
                array = array.reshape(-1, array.shape[-1])
            if array.ndim != 2 or len(array) != len(index) or (len(cards) and (cards != array.shape[1]).any()):
                wanted = (
                    f"({len(index)}, {int(cards[0])})" if len(set(cards.tolist())) == 1 else "one vector a variable"
                )
                raise ModelError(f"{what}: expected {wanted}, got an array of shape {array.shape}")
            flat: npt.NDArray[Any] = array.ravel()
        else:
            if len(costs) != len(index):
                raise ModelError(f"{what}: expected {len(index)} vectors, got {len(costs)}")
            rows = [check_costs(c, f"{what} of variable {int(i)}") for i, c in zip(index, costs, strict=True)]
            for i, c, row in zip(index, cards, rows, strict=True):
                if row.shape != (c,):
                    raise ModelError(f"{what}: variable {int(i)} has {int(c)} labels, got a shape of {row.shape}")
            flat = np.concatenate(rows) if rows else np.zeros(0)
        if nodes is None and self._unaries is None:
            given = isinstance(costs, np.ndarray) and np.may_share_memory(flat, costs)
            self._unaries, self._owned = flat.copy() if given else flat, True
        elif nodes is None:
            add_costs(self._own_unaries(), None, flat, True, what)
        else:
            assert not isinstance(index, range)
            starts = np.repeat(self.offset[index] - np.concatenate(([0], np.cumsum(cards)[:-1])), cards)
            once = len(np.unique(index)) == len(index)
            add_costs(self._own_unaries(), starts + np.arange(len(flat)), flat, once, what)
        self._graph = None

    def replace_unaries(self, costs: Any) -> None:
        """Put these in the place of all unary costs there are; costs as in ``add_unaries``, one vector a variable."""
        held, self._unaries = self._unaries, None
        try:
            self.add_unaries(costs)
        except BaseException:
            self._unaries = held
            raise

    def replace_weights(self, weights: Any) -> None:
        """New weights of all factors: one array (or number) where one call has added all of them, else a list.

        The list has an entry for every call that added factors of two or more variables, None where nothing changes.
        """
        what = "replace_weights"
        listed = isinstance(weights, list | tuple)
        if listed and len(self.blocks) == 1:  # numbers, or a list of one array
            listed = len(weights) == 1 and np.ndim(weights[0]) == 1
        given = weights if listed else [weights]
        if len(given) != len(self.blocks):
            raise ModelError(f"{what}: expected weights for {len(self.blocks)} blocks of factors, got {len(given)}")
        blocks = []
        for block, values in zip(self.blocks, given, strict=True):
            if values is None:
                blocks.append(block)
                continue
            w = check_weights(values, len(block), what)
            w = own_arrays({"weights": w}, [values]).get("weights", w)
            tables = isinstance(block, DenseBlock | SparseBlock)
            if tables and (w < 0).any() and any(np.isinf(getattr(block, name)).any() for name in block.costs_in):
                raise ModelError(f"{what}: a table with +inf cannot have a negative weight")
            blocks.append(replace(block, weights=w))
        self.blocks = blocks
        self._graph = None

    def add_factors(self, scopes: npt.ArrayLike, tables: Any, weights: npt.ArrayLike | None = None) -> None:
        """Add dense factors.

        scopes : (m, k) variables.
        tables : (S1, ..., Sk) shared by all m factors, or (m, S1, ..., Sk); axis p belongs to column p of the scopes.
        weights : (m,) or a number; factor c costs weights[c] * table.
        """
        what = "add_factors"
        index = self._scopes(scopes, what)
        table = check_costs(tables, f"{what}: tables")
        m, k = index.shape
        if table.ndim == k:
            table = table[None]
            rows = np.zeros(m, dtype=np.int64)
        elif table.ndim == k + 1 and len(table) == m:
            rows = np.arange(m, dtype=np.int64)
        else:
            raise ModelError(
                f"{what}: tables: expected {k} axes (shared) or ({m}, ...) with {k + 1}, got a shape of {table.shape}"
            )
        self._add_tables(index, table, rows, weights, given=(scopes, tables, weights))

    def add_indexed_factors(
        self, scopes: npt.ArrayLike, tables: Any, index: npt.ArrayLike, weights: npt.ArrayLike | None = None
    ) -> None:
        """Add dense factors that share a pool of tables: factor c uses tables[index[c]], tables is (t, S1, ..., Sk)."""
        what = "add_factors"
        scope = self._scopes(scopes, what)
        table = check_costs(tables, f"{what}: tables")
        rows = check_rows(index, f"{what}: index", 1)
        count = len(table) if table.ndim else 0
        if len(rows) != len(scope) or (len(rows) and (rows.min() < 0 or rows.max() >= count)):
            raise ModelError(f"{what}: index: expected {len(scope)} numbers in 0..{count - 1}")
        self._add_tables(scope, table, rows, weights, given=(scopes, tables, index, weights))

    def _add_tables(
        self, scope: IntArray, table: FloatArray, rows: IntArray, weights: npt.ArrayLike | None, given: tuple[Any, ...]
    ) -> None:
        what = "add_factors"
        m, k = scope.shape
        w = check_weights(weights, m, what)
        wrong = self.cardinalities[scope] != np.asarray(table.shape[1:])
        if wrong.any():
            c = int(np.argmax(wrong.any(axis=1)))
            raise ModelError(
                f"{what}: factor {c} on variables {tuple(scope[c].tolist())} has label counts "
                f"{tuple(self.cardinalities[scope[c]].tolist())}, but its table is {table.shape[1:]}"
            )
        if m and (w < 0).any() and np.isinf(table).any():
            raise ModelError(f"{what}: a table with +inf cannot have a negative weight")
        if k == 0:
            costs = finite_products(w, table.reshape(-1)[rows], f"{what}: weights and tables")
            with np.errstate(over="ignore"):
                total = float(costs.sum())
            if np.isinf(total) and np.isfinite(costs).all():
                raise ModelError(f"{what}: the constants add up to more than a number can hold")
            self.add_constant(total)
        elif k == 1:
            self._add_unary_factors(scope[:, 0], table, rows, w)
        else:
            self._append(DenseBlock(scope, w, table, rows), *given)

    def _add_unary_factors(self, nodes: IntArray, tables: FloatArray, rows: IntArray, weights: FloatArray) -> None:
        """Some factors at a time: a table that many factors share must not be written out for all of them at once."""
        step = max(1, UNARY_ENTRIES // max(tables.shape[1], 1))
        held = self._unaries, self._owned
        if len(nodes) > step:
            self._owned = False  # the present array stays as it is, in case a later part fails
        try:
            for begin in range(0, len(nodes), step):
                some = slice(begin, begin + step)
                costs = finite_products(weights[some, None], tables[rows[some]], "add_factors: weights and tables")
                self.add_unaries(costs, nodes[some])
        except ModelError:
            self._unaries, self._owned = held
            raise

    def add_potts(self, edges: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> None:
        """weights[c] * [a != b] on (m, 2) edges; label counts of the two ends may differ."""
        scopes = self._scopes(edges, "add_potts", arity=2)
        self._append(PottsBlock(scopes, check_weights(weights, len(scopes), "add_potts")), edges, weights)

    def add_truncated_linear(
        self, edges: npt.ArrayLike, weights: npt.ArrayLike | None = None, limit: npt.ArrayLike = np.inf
    ) -> None:
        """weights[c] * min(|a - b|, limit) on (m, 2) edges; limit is a number or (m,), +inf for no truncation."""
        what = "add_truncated_linear"
        scopes = self._scopes(edges, what, arity=2)
        m = len(scopes)
        block = LinearBlock(scopes, check_weights(weights, m, what), check_limits(limit, m, what))
        self._append(block, edges, weights, limit)

    def add_truncated_quadratic(
        self, edges: npt.ArrayLike, weights: npt.ArrayLike | None = None, limit: npt.ArrayLike = np.inf
    ) -> None:
        """weights[c] * min((a - b)^2, limit) on (m, 2) edges; the limit is on the squared difference."""
        what = "add_truncated_quadratic"
        scopes = self._scopes(edges, what, arity=2)
        m = len(scopes)
        block = QuadraticBlock(scopes, check_weights(weights, m, what), check_limits(limit, m, what))
        self._append(block, edges, weights, limit)

    def add_pn_potts(
        self,
        scopes: npt.ArrayLike,
        weights: npt.ArrayLike | None = None,
        label_costs: npt.ArrayLike | None = None,
        disagreement: float = 1.0,
    ) -> None:
        """weights[c] * (label_costs[l] if all variables take l, else ``disagreement``) on (m, k) scopes.

        label_costs : at least as many numbers as the smallest label count, zeros by default.
        """
        what = "add_pn_potts"
        index = self._scopes(scopes, what)
        if index.shape[1] < 2:
            raise ModelError(f"{what}: scopes need at least 2 variables, got {index.shape[1]}")
        labels = int(self.cardinalities[index].min(axis=1).max(initial=1))
        own = np.zeros(labels) if label_costs is None else check_costs(label_costs, f"{what}: label_costs")
        if own.ndim != 1 or len(own) < labels:
            raise ModelError(f"{what}: label_costs: expected {labels} numbers, got a shape of {own.shape}")
        costs = np.concatenate(([check_number(disagreement, f"{what}: disagreement")], own[:labels]))
        if not np.isfinite(costs).all():
            raise ModelError(f"{what}: costs must be finite; write hard constraints as tables (add_factors)")
        self._append(PnPottsBlock(index, check_weights(weights, len(index), what), costs), scopes, weights)

    def add_label_patterns(
        self, scopes: npt.ArrayLike, values: npt.ArrayLike, weights: npt.ArrayLike | None = None
    ) -> None:
        """weights[c] * values[rank of the pattern of equal labels] on (m, k) scopes (generalised Potts).

        values has one number per partition of k positions, in the order of ``tightmap.factors.pattern_ranks``.
        """
        from tightmap.factors.pattern import MAX_ARITY, PatternBlock, bell

        what = "add_label_patterns"
        index = self._scopes(scopes, what)
        k = index.shape[1]
        if not 2 <= k <= MAX_ARITY:
            raise ModelError(f"{what}: scopes need 2 to {MAX_ARITY} variables, got {k}")
        costs = check_costs(values, f"{what}: values")
        if costs.shape != (bell(k),) or not np.isfinite(costs).all():
            raise ModelError(f"{what}: values: expected {bell(k)} finite numbers, got a shape of {costs.shape}")
        self._append(PatternBlock(index, check_weights(weights, len(index), what), costs), scopes, weights, values)

    def add_sparse(
        self,
        scopes: npt.ArrayLike,
        entries: npt.ArrayLike,
        values: npt.ArrayLike,
        default: float = 0.0,
        weights: npt.ArrayLike | None = None,
    ) -> None:
        """A default cost and exceptions, shared by all scopes: row e of ``entries`` (K, k) costs values[e]."""
        what = "add_sparse"
        index = self._scopes(scopes, what)
        m, k = index.shape
        if not 2 <= k <= SPARSE_ARITY:
            raise ModelError(f"{what}: scopes need 2 to {SPARSE_ARITY} variables, got {k}")
        shape = self.cardinalities[index[0]] if m else np.ones(k, dtype=np.int64)
        if m and (self.cardinalities[index] != shape).any():
            raise ModelError(f"{what}: all scopes of one call must have the same label counts")
        if float(np.prod(shape.astype(np.float64))) >= 2.0**62:
            raise ModelError(f"{what}: a table of {tuple(shape.tolist())} has more than 2^62 entries")
        rows = check_rows(entries, f"{what}: entries", 2)
        rows = rows if rows.size else np.zeros((0, k), dtype=np.int64)
        if rows.shape[1] != k:
            raise ModelError(f"{what}: entries: expected {k} labels in every row, got a shape of {rows.shape}")
        costs = check_costs(values, f"{what}: values").reshape(-1)
        base = np.asarray(check_number(default, f"{what}: default"))
        if len(costs) != len(rows):
            raise ModelError(f"{what}: {len(rows)} entries but {len(costs)} values")
        if len(rows) and ((rows < 0) | (rows >= shape)).any():
            e = int(np.argmax(((rows < 0) | (rows >= shape)).any(axis=1)))
            raise ModelError(
                f"{what}: entry {e} is {tuple(rows[e].tolist())}, label counts are {tuple(shape.tolist())}"
            )
        block = SparseBlock(index, check_weights(weights, m, what), shape, rows, costs, base)
        keys = block.keys() if len(rows) else np.zeros(0, dtype=np.int64)
        if len(np.unique(keys)) != len(keys):
            raise ModelError(f"{what}: the same labelling is listed twice")
        if m and (block.weights < 0).any() and (np.isinf(costs).any() or np.isinf(base)):
            raise ModelError(f"{what}: a table with +inf cannot have a negative weight")
        self._append(block, scopes, entries, values, weights)

    def add_second_difference(
        self,
        triples: npt.ArrayLike,
        weights: npt.ArrayLike | None,
        values: Any,
        limit: float = np.inf,
    ) -> None:
        """weights[c] * min(|v_a - 2 v_b + v_c|, limit) on (m, 3) triples.

        values : (n, S), or a list of one vector per variable: the number that each label of each variable stands for.
        """
        what = "add_second_difference"
        index = self._scopes(triples, what, arity=3)
        stand = listed(values, f"{what}: values")
        if isinstance(stand, np.ndarray):
            flat = check_costs(stand, f"{what}: values").reshape(-1)
        else:
            flat = np.concatenate([check_costs(v, f"{what}: values").reshape(-1) for v in stand] or [np.zeros(0)])
        if len(flat) != self.num_labels or not np.isfinite(flat).all():
            raise ModelError(f"{what}: values: expected {self.num_labels} finite numbers in all, got {len(flat)}")
        top = np.asarray(check_number(limit, f"{what}: limit"))
        if top < 0:
            raise ModelError(f"{what}: limit must be at least 0, got {limit}")
        w = check_weights(weights, len(index), what)
        self._append(SecondDifferenceBlock(index, w, flat, self.offset, top), triples, weights, values)

    def add_custom(self, block: CustomBlock) -> None:
        """Add factors of a kind that is not part of the package (``tightmap.factors.custom``)."""
        from tightmap.factors.custom import check_kind

        check_kind(type(block), "add_custom")
        what = f"add_custom: {block.name}"
        index = self._scopes(block.scopes, what)
        if index.shape[1] < 2:
            raise ModelError(f"{what}: scopes need at least 2 variables, got {index.shape[1]}")
        weights = check_weights(block.weights, len(index), what)
        for name in block.per_row:
            if len(np.atleast_1d(getattr(block, name))) != len(index):
                raise ModelError(f"{what}: {name}: expected one entry for each of {len(index)} factors")
        ready = replace(block, scopes=index, weights=weights)
        if len(index):  # once, so that a function that does not work is found here
            ready.total(np.zeros(self.num_variables, dtype=np.int64))
        self._append(ready, *(getattr(block, f.name) for f in fields(block)))

    def clamp(self, evidence: Mapping[int, int] | Iterable[tuple[int, int]]) -> None:
        """Fix variables to labels (evidence).  Labellings that disagree have infinite energy."""
        nodes, labels = check_evidence(evidence, self.cardinalities)
        clamped = self.clamped.copy()
        before = clamped[nodes]
        clamped[nodes] = labels
        for given in (before, clamped[nodes]):  # what was fixed earlier, and what the same evidence says elsewhere
            clash = (given >= 0) & (given != labels)
            if clash.any():
                i = int(np.argmax(clash))
                raise ModelError(
                    f"evidence: variable {int(nodes[i])} is given both {int(given[i])} and {int(labels[i])}"
                )
        self.clamped = clamped
        self._graph = None

    # ------------------------------------------------------------------ evaluating

    def energy(self, labels: npt.ArrayLike) -> float:
        """Energy of a labelling in float64; +inf when it uses a forbidden combination or contradicts the evidence."""
        x = self._labels(labels)
        held = self.clamped >= 0
        if np.count_nonzero(held) and (x[held] != self.clamped[held]).any():
            return float("inf")
        total = self.constant
        if self._unaries is not None:
            for begin in range(0, len(x), PART):
                some = slice(begin, begin + PART)
                total += float(self._unaries[self.begins(some) + x[some]].astype(np.float64, copy=False).sum())
        for block in self.blocks:
            total += float(block.evaluate(x).sum()) if len(block) <= PART else block.total(x)
        return total

    def graph(self) -> Graph:
        """The canonical form, made once and kept until the model changes.

        Threads that ask for it at once get the same one: the first that is put into the dict.  Whoever changes the
        model meanwhile puts another dict there, so what was made before is never taken for the model as it is now.
        """
        made = self._made
        if "graph" not in made:
            from tightmap.canonical.build import build_graph

            n, labels = self.num_variables, float(self.num_labels)
            blocks = sum(b.nbytes for b in self.blocks)
            require(8.0 * labels + 80.0 * n + blocks, f"the graph of {n} variables and {labels:.0f} labels")
            made.setdefault("graph", build_graph(self))
        return made["graph"]

    @property
    def _graph(self) -> Graph | None:
        """The canonical form if there is one."""
        return self._made.get("graph")

    @_graph.setter
    def _graph(self, graph: Graph | None) -> None:
        self._made = {} if graph is None else {"graph": graph}

    def __repr__(self) -> str:
        return (
            f"Model({self.num_variables} variables, up to {self.max_labels} labels, {self.num_factors} factors, "
            f"order {self.max_order})"
        )

    def _repr_html_(self) -> str:
        from tightmap.view.notebook import model_html

        return model_html(self)

    # ------------------------------------------------------------------ checking

    def _append(self, block: Block, *given: Any) -> None:
        """Add a block; its arrays are the model's own, whatever becomes of those that the user gave."""
        if len(block):
            held = {name: a for name, a in vars(block).items() if isinstance(a, np.ndarray)}
            copies = own_arrays(held, given)
            self.blocks.append(replace(block, **copies) if copies else block)
            self._graph = None

    def _labels(self, labels: npt.ArrayLike) -> IntArray:
        return check_labels(labels, self.cardinalities, self.shape)

    def _scopes(self, scopes: npt.ArrayLike, what: str, arity: int | None = None) -> IntArray:
        return check_scopes(scopes, self.num_variables, what, arity)
