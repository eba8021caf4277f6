# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false, reportReturnType=false
# pyright: reportOptionalMemberAccess=false
# (llvmlite and numba do not describe their types.)
"""Vectors of 16 numbers for Numba: the few operations that the kernels need, written once in LLVM's terms.

Numba has no vector type, and LLVM's automatic vectoriser gives up on a loop that calls `exp` or whose arrays might
overlap. `Lanes` is a vector that lives in registers; LLVM splits it into what the machine has (two AVX registers,
one AVX-512, four NEON). `a * b + c` becomes a fused multiply-add where the machine has one.

Everything here works on float32 and on float64 alike, so that a kernel can be checked in double precision. At the end:
tensors as the kernels want them, the last axis dense and channels in whole groups of lanes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import factorial, log
from typing import Any

import torch.nn.functional as F
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable
from torch import Tensor

WIDTH = 16
# 2^f = 1 + f·q(f) on |f| ≤ ½, q interpolated at Chebyshev points: 9e-9 relative, and none at 0, where it would add
# up over the many steps of a slowly fading memory. Taylor's sixth degree is off by 1e-7 at the ends.
EXP2_SINGLE = [1.0, 0.69314718803, 0.24022650922, 0.05550357104, 0.00961805667, 0.00133908674, 0.00015461447]
CONTRACT = ("contract",)  # allow a·b+c to round once; nothing else of "fast math", so NaN and inf stay themselves


def _vector_operation(function: Callable[..., Any]) -> Callable[..., Any]:
    """Numba's `intrinsic`, typed as what kernels call: they leave out the first parameter, which Numba supplies."""
    return intrinsic(function)


class LanesType(types.Type):
    def __init__(self, scalar: types.Float) -> None:
        self.scalar = scalar
        super().__init__(name=f"Lanes({scalar})")


@register_model(LanesType)
class LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, lanes: LanesType) -> None:
        super().__init__(manager, lanes, _vector(lanes.scalar))


def _element(scalar: types.Float) -> ir.Type:
    return ir.FloatType() if scalar == types.float32 else ir.DoubleType()


def _vector(scalar: types.Float) -> ir.VectorType:
    return ir.VectorType(_element(scalar), WIDTH)


def _splat(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    vector = ir.VectorType(value.type, WIDTH)
    single = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    everywhere = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
    return builder.shuffle_vector(single, ir.Constant(vector, ir.Undefined), everywhere)


def _pointer(context: Any, builder: ir.IRBuilder, array_type: types.Array, array: Any, index: Any) -> ir.Value:
    """Address of array[index]. The last axis must be dense; the caller has seen to it."""
    fields = context.make_array(array_type)(context, builder, array)
    strides = cgutils.unpack_tuple(builder, fields.strides, array_type.ndim)
    positions = cgutils.unpack_tuple(builder, index, array_type.ndim)
    word = positions[-1].type
    size = ir.Constant(word, context.get_abi_sizeof(_element(array_type.dtype)))
    offset = builder.mul(positions[-1], size)
    for position, stride in zip(positions[:-1], strides[:-1], strict=True):
        offset = builder.add(offset, builder.mul(position, stride))
    start = builder.bitcast(fields.data, ir.IntType(8).as_pointer())
    return builder.gep(start, [offset])


@_vector_operation
def load(_: Any, array: types.Array, index: types.UniTuple) -> Any:
    """16 neighbours from array[index] on."""
    lanes = LanesType(array.dtype)

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        address = _pointer(context, builder, array, *arguments)
        return builder.load(
            builder.bitcast(address, _vector(array.dtype).as_pointer()), align=array.dtype.bitwidth // 8
        )

    return lanes(array, index), codegen


@_vector_operation
def store(_: Any, array: types.Array, index: types.UniTuple, value: LanesType) -> Any:
    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        address = _pointer(context, builder, array, *arguments[:2])
        target = builder.bitcast(address, _vector(array.dtype).as_pointer())
        builder.store(arguments[2], target, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, index, value), codegen


@_vector_operation
def spread(_: Any, array: types.Array, index: types.UniTuple) -> Any:
    """array[index] in all 16 lanes."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        address = _pointer(context, builder, array, *arguments)
        return _splat(builder, builder.load(builder.bitcast(address, _element(array.dtype).as_pointer())))

    return LanesType(array.dtype)(array, index), codegen


@_vector_operation
def fetch(_: Any, array: types.Array, index: types.UniTuple) -> Any:
    """Ask for the cache line at array[index], which need not exist: rows far apart defeat the hardware's own guess."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        address = _pointer(context, builder, array, *arguments)
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [address, *(ir.Constant(number, flag) for flag in (0, 3, 1))])  # read, keep, data
        return context.get_dummy_value()

    return types.void(array, index), codegen


@_vector_operation
def zeros(_: Any, like: types.Array) -> Any:
    """16 zeros of the array's type."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        return ir.Constant(_vector(like.dtype), [0.0] * WIDTH)

    return LanesType(like.dtype)(like), codegen


@_vector_operation
def store_totals(_: Any, rows: types.Array, index: types.UniTuple, target: types.Array, place: types.UniTuple) -> Any:
    """The sums over lanes of four consecutive rows (next-to-last axis, 16 dense numbers each), stored side by side.

    Always added in the same order. Four at a time need half the shuffles of one at a time.
    """

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        def pick(a: ir.Value, b: ir.Value, lanes: list[int]) -> ir.Value:
            return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes))

        def add_neighbours(a: ir.Value, b: ir.Value) -> ir.Value:
            even = [0, 2, 8, 10, 4, 6, 12, 14]
            return builder.fadd(pick(a, b, even), pick(a, b, [lane + 1 for lane in even]))

        address = builder.bitcast(_pointer(context, builder, rows, *arguments[:2]), _vector(rows.dtype).as_pointer())
        size = rows.dtype.bitwidth // 8
        eights = []
        for row in range(4):
            vector = builder.load(
                builder.gep(address, [ir.Constant(ir.IntType(32), row)], source_etype=_vector(rows.dtype)), align=size
            )
            eights.append(builder.fadd(pick(vector, vector, list(range(8))), pick(vector, vector, list(range(8, 16)))))
        a, b, c, d = eights
        sums = add_neighbours(add_neighbours(a, b), add_neighbours(c, d))
        four = builder.fadd(pick(sums, sums, [0, 1, 2, 3]), pick(sums, sums, [4, 5, 6, 7]))
        address = builder.bitcast(_pointer(context, builder, target, *arguments[2:]), four.type.as_pointer())
        builder.store(four, address, align=size)
        return context.get_dummy_value()

    return types.void(rows, index, target, place), codegen


def _operator(symbol: Any, emit: Callable[[ir.IRBuilder, ir.Value, ir.Value], ir.Value]) -> None:
    """Teach Numba `symbol` between two Lanes."""

    @type_callable(symbol)
    def typed(_: Any) -> Any:
        def result(a: types.Type, b: types.Type) -> types.Type | None:
            return a if isinstance(a, LanesType) and a == b else None

        return result

    @lower_builtin(symbol, LanesType, LanesType)
    def lowered(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        return emit(builder, *arguments)


_operator(operator.add, lambda builder, a, b: builder.fadd(a, b, flags=CONTRACT))
_operator(operator.sub, lambda builder, a, b: builder.fsub(a, b, flags=CONTRACT))
_operator(operator.truediv, lambda builder, a, b: builder.fdiv(a, b))
_operator(operator.mul, lambda builder, a, b: builder.fmul(a, b, flags=CONTRACT))


@_vector_operation
def larger(_: Any, a: LanesType, b: LanesType) -> Any:
    """The larger of each pair; b where a is not a number."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        return builder.select(builder.fcmp_ordered(">", *arguments), *arguments)

    return a(a, b), codegen


@_vector_operation
def reaches(_: Any, a: LanesType, b: LanesType) -> Any:
    """Whether any lane of a is at least that of b, or not a number."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        bits = builder.bitcast(builder.fcmp_unordered(">=", *arguments), ir.IntType(WIDTH))
        return builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))

    return types.boolean(a, b), codegen


@_vector_operation
def exp2(_: Any, value: LanesType) -> Any:
    """2 to the value."""
    return _exp2(value, "whole")


@_vector_operation
def exp2_power(_: Any, value: LanesType) -> Any:
    """The power of two nearest to 2 to the value (in its logarithm)."""
    return _exp2(value, "power")


@_vector_operation
def exp2_rest(_: Any, value: LanesType) -> Any:
    """2 to the value minus that power, with all its digits. What both have in common, LLVM computes once."""
    return _exp2(value, "rest")


def _exp2(value: LanesType, part: str) -> Any:
    """2 to the value, to about one unit in the last place; exactly 1 at 0; below 2⁻¹²⁵ (2⁻¹⁰²¹) it stays there.

    Split z = k + f, k whole and |f| ≤ ½: a polynomial gives 2^f. Rounding to k is done by adding 1.5·2^mantissa bits,
    where floats are whole numbers, and with it the exponent's bias: the low bits of that sum are the exponent of 2^k.
    2^f is multiplied by 2^k; adding k to its exponent bits would turn some NaN (CUDA's, for one) into numbers.
    """
    single = value.scalar == types.float32
    mantissa, lowest, bias = (23, -125.0, 127.0) if single else (52, -1021.0, 1023.0)
    highest = bias + 1 if part == "whole" else bias  # one more is infinity; as a part it would make NaN of 0·h
    terms: list[float] = EXP2_SINGLE if single else [log(2) ** order / factorial(order) for order in range(14)]

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        def constant(number: float) -> ir.Value:
            return ir.Constant(_vector(value.scalar), [number] * WIDTH)

        def clamp(z: ir.Value, comparison: str, bound: float) -> ir.Value:
            return builder.select(builder.fcmp_ordered(comparison, z, constant(bound)), constant(bound), z)

        (z,) = arguments
        z = clamp(clamp(z, "<", lowest), ">", highest)
        shift = constant(1.5 * 2.0**mantissa + bias)
        shifted = builder.fadd(z, shift)
        f = builder.fsub(z, builder.fsub(shifted, shift))

        def fma(a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
            return builder.fadd(builder.fmul(a, b, flags=CONTRACT), c, flags=CONTRACT)

        bits = ir.VectorType(ir.IntType(32 if single else 64), WIDTH)
        scale = builder.shl(builder.bitcast(shifted, bits), ir.Constant(bits, [mantissa] * WIDTH))
        scale = builder.bitcast(scale, _vector(value.scalar))
        if part == "power":
            return scale
        factors = terms[1:] if part == "rest" else terms
        # Pairs c₀ + c₁f, c₂ + c₃f, … joined by powers of f²: half as long a chain of dependent steps as Horner's.
        square = builder.fmul(f, f)
        power = None
        for order in range((len(factors) - 1) // 2 * 2, -1, -2):
            pair = constant(factors[order])
            if order + 1 < len(factors):
                pair = fma(constant(factors[order + 1]), f, pair)
            power = pair if power is None else fma(power, square, pair)
        return builder.fmul(builder.fmul(power, f) if part == "rest" else power, scale)

    return value(value), codegen


@_vector_operation
def take_number(_: Any, counter: types.Array) -> Any:
    """The counter's value, and one added to it, in one step that threads cannot share."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        fields = context.make_array(counter)(context, builder, arguments[0])
        return builder.atomic_rmw("add", fields.data, ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(counter), codegen


def dense(tensor: Tensor) -> Tensor:
    """Neighbours along the last axis are neighbours in memory; other axes may have any stride."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def whole_groups(tensor: Tensor) -> Tensor:
    """The last axis, channels, filled up with zeros to a multiple of the lanes."""
    spare = -tensor.shape[-1] % WIDTH
    return F.pad(tensor, (0, spare)) if spare else dense(tensor)


def cut(tensor: Tensor, channels: int) -> Tensor:
    """The opposite."""
    return tensor if tensor.shape[-1] == channels else tensor[..., :channels].contiguous()
