"""Eight lanes at once: a small SIMD vector type for Numba kernels.

Numba leaves vectorisation to LLVM, which gives up on loops over a few labels of arrays that might overlap.  The
kernels that pass messages on grids therefore say what they mean: ``load`` takes eight neighbouring array elements
into one register value, ``+ - *`` work lane by lane, ``store`` writes them back.  LLVM splits the eight lanes into
whatever the machine has (one AVX register of float32, two of float64, two of NEON), so the code is portable and
every lane is computed with the same operations in the same order wherever it runs.

There are no bounds checks: an index that leaves its array is the caller's mistake.  Under NUMBA_BOUNDSCHECK=1 there are
(``guard``): every access is tested against the size of its array, and a ``pointer`` is the array itself.  ``lanes``
says in plain Python what each instruction does.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs, allow-untyped-calls
from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic, models, overload, register_model

from tightmap.runtime import guard, lanes
from tightmap.runtime.compiled import instruction

LANES = lanes.LANES


class Vec(types.Type):
    """Type of a vector of LANES floating-point numbers, known to Numba only (it never reaches Python)."""

    def __init__(self, dtype: types.Float) -> None:
        self.dtype = dtype
        super().__init__(name=f"Vec{LANES}({dtype})")


@register_model(Vec)
class _VecModel(models.PrimitiveModel):
    def __init__(self, manager: Any, fe_type: Vec) -> None:
        element = ir.FloatType() if fe_type.dtype == types.float32 else ir.DoubleType()
        super().__init__(manager, fe_type, ir.VectorType(element, LANES))


def _mask(order: list[int]) -> ir.Constant:
    return ir.Constant(ir.VectorType(ir.IntType(32), len(order)), order)


def _element(context: Any, builder: Any, arytype: Any, ary: Any, index: Any, count: int = 1) -> Any:
    """Where ary[index] is, the first of ``count`` elements that are going to be read or written; 0: of none."""
    if isinstance(arytype, types.CPointer):
        return builder.gep(ary, [index])
    array = cgutils.create_struct_proxy(arytype)(context, builder, ary)
    if guard.CHECKED and count:
        guard.check_range(context, builder, index, count, array.nitems)
    return builder.gep(array.data, [index])


def _vector(context: Any, builder: Any, arytype: Any, ary: Any, index: Any) -> Any:
    vector = ir.VectorType(context.get_data_type(arytype.dtype), LANES)
    return builder.bitcast(_element(context, builder, arytype, ary, index, LANES), vector.as_pointer())


def _is_plain(ary: Any) -> bool:
    """A contiguous array, or the pointer to one."""
    return isinstance(ary, types.CPointer) or (isinstance(ary, types.Array) and ary.ndim == 1 and ary.layout == "C")


def _is_lane_array(ary: Any) -> bool:
    return _is_plain(ary) and isinstance(ary.dtype, types.Float)


@instruction(lanes.pointer)
def pointer(typingctx, ary):
    """Where an array's elements are.  Numba counts references to arrays at every call and assignment; of a pointer it
    does not, which is what inner loops over many small arrays need.  The array itself has to be kept by the caller:
    one that the kernel has made is given back to the heap after its last mention, so mention it again with ``keep``
    when the pointer is needed no more.
    """
    if not (isinstance(ary, types.Array) and _is_plain(ary)):
        return None

    def codegen(context, builder, sig, args):
        return cgutils.create_struct_proxy(sig.args[0])(context, builder, args[0]).data

    def itself(context, builder, sig, args):
        return impl_ret_borrowed(context, builder, sig.return_type, args[0])

    return (ary(ary), itself) if guard.CHECKED else (types.CPointer(ary.dtype)(ary), codegen)


@instruction(lanes.keep)
def keep(typingctx, ary):
    """Does nothing: the array lives until here."""

    def codegen(context, builder, sig, args):
        return context.get_dummy_value()

    return types.none(ary), codegen


@instruction(lanes.load)
def load(typingctx, ary, index):
    """The eight elements of a contiguous float array that start at index."""
    if not _is_lane_array(ary):
        return None
    vec = Vec(ary.dtype)

    def codegen(context, builder, sig, args):
        place = _vector(context, builder, sig.args[0], args[0], args[1])
        return builder.load(place, align=sig.args[0].dtype.bitwidth // 8)

    return vec(ary, types.intp), codegen


@instruction(lanes.load_as)
def load_as(typingctx, ary, index, like):
    """As load, from floats or unsigned integers, converted to the dtype of the array ``like``."""
    if not (_is_plain(ary) and _is_lane_array(like)):
        return None
    unsigned = isinstance(ary.dtype, types.Integer) and not ary.dtype.signed
    if not (unsigned or ary.dtype == like.dtype):
        return None
    vec = Vec(like.dtype)

    def codegen(context, builder, sig, args):
        place = _vector(context, builder, sig.args[0], args[0], args[1])
        value = builder.load(place, align=sig.args[0].dtype.bitwidth // 8)
        return builder.uitofp(value, context.get_value_type(vec)) if unsigned else value

    return vec(ary, types.intp, like), codegen


@instruction(lanes.store)
def store(typingctx, ary, index, value):
    """Write a vector to eight elements of an array of its own dtype."""
    if not (_is_lane_array(ary) and isinstance(value, Vec) and value.dtype == ary.dtype):
        return None

    def codegen(context, builder, sig, args):
        place = _vector(context, builder, sig.args[0], args[0], args[1])
        builder.store(args[2], place, align=sig.args[0].dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.none(ary, types.intp, value), codegen


@instruction(lanes.get)
def get(typingctx, ary, index):
    """One element of an array or behind a pointer; unlike ary[index] without the test for a negative index."""
    if not _is_plain(ary):
        return None

    def codegen(context, builder, sig, args):
        return builder.load(_element(context, builder, sig.args[0], args[0], args[1]))

    return ary.dtype(ary, types.intp), codegen


@instruction(lanes.put)
def put(typingctx, ary, index, value):
    """ary[index] = value, without the test for a negative index."""
    if not _is_plain(ary):
        return None

    def codegen(context, builder, sig, args):
        builder.store(args[2], _element(context, builder, sig.args[0], args[0], args[1]))
        return context.get_dummy_value()

    return types.none(ary, types.intp, ary.dtype), codegen


@instruction(lanes.prefetch)
def prefetch(typingctx, ary, index):
    """Ask for the cache line of ary[index] (which may be outside the array): it will be read and written soon."""
    if not _is_plain(ary):
        return None

    def codegen(context, builder, sig, args):
        word, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        place = builder.bitcast(_element(context, builder, sig.args[0], args[0], args[1], count=0), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [place, word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.none(ary, types.intp), codegen


@instruction(lanes.splat)
def splat(typingctx, scalar):
    """The same number in every lane."""
    if not isinstance(scalar, types.Float):
        return None
    vec = Vec(scalar)

    def codegen(context, builder, sig, args):
        llvec = context.get_value_type(vec)
        one = builder.insert_element(ir.Constant(llvec, ir.Undefined), args[0], ir.Constant(ir.IntType(32), 0))
        return builder.shuffle_vector(one, ir.Constant(llvec, ir.Undefined), _mask([0] * LANES))

    return vec(scalar), codegen


@instruction(lanes.cast)
def cast(typingctx, value, like):
    """Lanes of value in the dtype of the array ``like``."""
    if not (isinstance(value, Vec) and isinstance(like, types.Array)):
        return None
    vec = Vec(like.dtype)

    def codegen(context, builder, sig, args):
        source, target = sig.args[0].dtype.bitwidth, vec.dtype.bitwidth
        if source == target:
            return args[0]
        convert = builder.fpext if source < target else builder.fptrunc
        return convert(args[0], context.get_value_type(vec))

    return vec(value, like), codegen


def _binary(name: str) -> Any:
    @intrinsic
    def op(typingctx, a, b):
        if not (isinstance(a, Vec) and a == b):
            return None

        def codegen(context, builder, sig, args):
            return getattr(builder, name)(*args)

        return a(a, b), codegen

    return op


_add, _sub, _mul, _div = _binary("fadd"), _binary("fsub"), _binary("fmul"), _binary("fdiv")


@overload(operator.add)
def _overload_add(a, b):
    return (lambda a, b: _add(a, b)) if isinstance(a, Vec) and isinstance(b, Vec) else None


@overload(operator.sub)
def _overload_sub(a, b):
    return (lambda a, b: _sub(a, b)) if isinstance(a, Vec) and isinstance(b, Vec) else None


@overload(operator.mul)
def _overload_mul(a, b):
    return (lambda a, b: _mul(a, b)) if isinstance(a, Vec) and isinstance(b, Vec) else None


@overload(operator.truediv)
def _overload_div(a, b):
    return (lambda a, b: _div(a, b)) if isinstance(a, Vec) and isinstance(b, Vec) else None


@instruction(lanes.choose_less)
def choose_less(typingctx, a, b, x, y):
    """x where a < b, y elsewhere."""
    if not (isinstance(a, Vec) and a == b and isinstance(x, Vec) and x == y):
        return None

    def codegen(context, builder, sig, args):
        return builder.select(builder.fcmp_ordered("<", args[0], args[1]), args[2], args[3])

    return x(a, b, x, y), codegen


@instruction(lanes.minimum)
def minimum(typingctx, a, b):
    """a where a < b, b elsewhere: one min instruction."""
    if not (isinstance(a, Vec) and a == b):
        return None

    def codegen(context, builder, sig, args):
        return builder.select(builder.fcmp_ordered("<", args[0], args[1]), args[0], args[1])

    return a(a, b), codegen


@instruction(lanes.maximum)
def maximum(typingctx, a, b):
    """a where a > b, b elsewhere."""
    if not (isinstance(a, Vec) and a == b):
        return None

    def codegen(context, builder, sig, args):
        return builder.select(builder.fcmp_ordered(">", args[0], args[1]), args[0], args[1])

    return a(a, b), codegen


@instruction(lanes.absolute)
def absolute(typingctx, value):
    """Lanes without their signs."""
    if not isinstance(value, Vec):
        return None

    def codegen(context, builder, sig, args):
        vector = context.get_value_type(sig.args[0])
        bits = 32 if sig.args[0].dtype == types.float32 else 64
        kind = ir.FunctionType(vector, [vector])
        function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fabs.v{LANES}f{bits}")
        return builder.call(function, [args[0]])

    return value(value), codegen


def _shifting(order: list[int], twin: Any) -> Any:
    @instruction(twin)
    def op(typingctx, value, scalar):
        if not (isinstance(value, Vec) and scalar == value.dtype):
            return None

        def codegen(context, builder, sig, args):
            llvec = context.get_value_type(sig.args[0])
            undefined = ir.Constant(llvec, ir.Undefined)
            fill = builder.insert_element(undefined, args[1], ir.Constant(ir.IntType(32), 0))
            return builder.shuffle_vector(args[0], fill, _mask(order))

        return value(value, scalar), codegen

    return op


shift_up = _shifting([LANES, *range(LANES - 1)], lanes.shift_up)  # (x, v0, ..., v6)
shift_down = _shifting([*range(1, LANES), LANES], lanes.shift_down)  # (v1, ..., v7, x)
replace_last = _shifting([*range(LANES - 1), LANES], lanes.replace_last)  # (v0, ..., v6, x)


@instruction(lanes.lane)
def lane(typingctx, value, index):
    """One lane as a scalar; index is an integer literal or variable."""
    if not (isinstance(value, Vec) and isinstance(index, types.Integer | types.IntegerLiteral)):
        return None

    def codegen(context, builder, sig, args):
        return builder.extract_element(args[0], context.cast(builder, args[1], sig.args[1], types.int32))

    return value.dtype(value, index), codegen


@instruction(lanes.less_mask)
def less_mask(typingctx, a, b):
    """Bit k of the integer is set where lane k of a is less than that of b; zero when no lane is."""
    if not (isinstance(a, Vec) and a == b):
        return None

    def codegen(context, builder, sig, args):
        bits = builder.bitcast(builder.fcmp_ordered("<", args[0], args[1]), ir.IntType(LANES))
        return builder.zext(bits, ir.IntType(64))

    return types.int64(a, b), codegen


@instruction(lanes.lane_sum)
def lane_sum(typingctx, value):
    """Sum of the lanes, first to last."""
    if not isinstance(value, Vec):
        return None

    def codegen(context, builder, sig, args):
        total = builder.extract_element(args[0], ir.Constant(ir.IntType(32), 0))
        for k in range(1, LANES):
            total = builder.fadd(total, builder.extract_element(args[0], ir.Constant(ir.IntType(32), k)))
        return total

    return value.dtype(value), codegen


@instruction(lanes.lane_min)
def lane_min(typingctx, value):
    """The smallest lane."""
    if not isinstance(value, Vec):
        return None

    def codegen(context, builder, sig, args):
        vector = args[0]
        undefined = ir.Constant(context.get_value_type(sig.args[0]), ir.Undefined)
        half = LANES // 2
        while half:
            other = builder.shuffle_vector(vector, undefined, _mask([(i + half) % LANES for i in range(LANES)]))
            vector = builder.select(builder.fcmp_ordered("<", vector, other), vector, other)
            half //= 2
        return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))

    return value.dtype(value), codegen
