"""Arithmetic that numpy has not or does otherwise: C's division, high products, tensor cores, atomic sums."""

from collections.abc import Callable
from typing import Any

import numpy as np
from triton._C.libtriton import ir

from . import numeric
from .numeric import Array, convert


def divide(lhs: Array, rhs: Array) -> tuple[Array, Array]:
    """Quotient rounded toward zero, as C and the GPU do it, and the remainder."""
    divisor: Any = rhs
    if not any(rhs.strides) and rhs.size:
        divisor = rhs.flat[0]  # numpy divides by one number ten times faster than by an array
    quotient = lhs // divisor
    remainder = lhs - quotient * divisor
    if lhs.dtype.kind == "i":
        floored = (remainder != 0) & ((lhs < 0) != (divisor < 0))
        if floored.any():
            quotient = quotient + floored.astype(lhs.dtype)
            remainder = lhs - quotient * divisor
    return quotient, remainder


def multiply_high(lhs: Array, rhs: Array) -> Any:
    """The upper half of the product of two unsigned integers."""
    dtype = lhs.dtype
    bits = dtype.itemsize * 8
    unsigned = np.dtype(f"uint{bits}")
    a, b = lhs.view(unsigned), rhs.view(unsigned)
    if bits < 64:
        wide = np.dtype(f"uint{bits * 2}")
        return ((a.astype(wide) * b.astype(wide)) >> wide.type(bits)).astype(unsigned).view(dtype)
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    a_low, a_high, b_low, b_high = a & low, a >> shift, b & low, b >> shift
    middle = a_high * b_low + ((a_low * b_low) >> shift)
    carry = (middle & low) + a_low * b_high
    return (a_high * b_high + (middle >> shift) + (carry >> shift)).view(dtype)


def multiplication(dtype: np.dtype[Any], precision: Any) -> tuple[str, Callable[[Array], Array]]:
    """How a tensor core or the CUDA cores read the operands, and the name under which the FLOPs are counted."""
    if dtype == np.float32:
        if precision == ir.INPUT_PRECISION.TF32:
            return "tf32", numeric.tf32
        if precision == getattr(ir.INPUT_PRECISION, "BF16x3", None):
            return "bf16x3", numeric.bfloat16_split
        return {ir.INPUT_PRECISION.TF32x3: "tf32x3", ir.INPUT_PRECISION.IEEE: "float32"}.get(precision, "bf16x6"), _same
    if dtype == np.float64:
        return "float64", _same
    if dtype.kind in "iu":
        return "int8", lambda data: data.astype(np.float64)
    name = {numeric.BFLOAT16: "bfloat16", np.dtype(np.float16): "float16"}.get(dtype, "float8")
    return name, lambda data: convert(data, np.dtype(np.float32))


def _same(data: Array) -> Array:
    return data


def addresses(memory: Array, index: Array) -> Any:
    """Real addresses of elements, for Triton's native atomics."""
    return np.uint64(memory.ctypes.data) + index.astype(np.uint64) * np.uint64(memory.dtype.itemsize)


def add_in_turn(memory: Array, index: Array, values: Array) -> Array:
    """Adds lane by lane, so that lanes on one address each see the sum before them."""
    if np.unique(index).size == index.size:
        old = memory[index]
        memory[index] = old + values
        return old
    old = np.empty_like(values)
    for lane, (where, value) in enumerate(zip(index, values, strict=True)):
        old[lane] = memory[where]
        memory[where] = old[lane] + value
    return old
