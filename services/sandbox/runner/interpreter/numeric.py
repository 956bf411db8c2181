"""Number formats: numpy types for Triton's, and conversions that round as the GPU does."""

from typing import Any

import ml_dtypes
import numpy as np

from .errors import NotInterpretable

Array = np.ndarray[Any, Any]

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
POINTER: np.dtype[Any] = np.dtype(np.uint64)
_NUMPY: dict[str, np.dtype[Any]] = {
    "int1": np.dtype(bool),
    "int8": np.dtype(np.int8),
    "uint8": np.dtype(np.uint8),
    "int16": np.dtype(np.int16),
    "uint16": np.dtype(np.uint16),
    "int32": np.dtype(np.int32),
    "uint32": np.dtype(np.uint32),
    "int64": np.dtype(np.int64),
    "uint64": np.dtype(np.uint64),
    "fp16": np.dtype(np.float16),
    "bf16": BFLOAT16,
    "fp32": np.dtype(np.float32),
    "fp64": np.dtype(np.float64),
    "fp8e5": np.dtype(ml_dtypes.float8_e5m2),
    "fp8e4nv": np.dtype(ml_dtypes.float8_e4m3fn),
    "fp8e4b8": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "fp8e5b16": np.dtype(ml_dtypes.float8_e5m2fnuz),
}
_FP8 = frozenset(_NUMPY[name] for name in ("fp8e5", "fp8e4nv", "fp8e4b8", "fp8e5b16"))
# numpy indexes its own types several times faster than ml_dtypes' ones.
STORAGE = {dtype: np.dtype(f"uint{dtype.itemsize * 8}") for dtype in (*_FP8, BFLOAT16)}


def numpy_type(triton_type: Any) -> np.dtype[Any]:
    """The numpy type of one element of a Triton type; pointers are uint64."""
    scalar = triton_type.scalar
    if scalar.is_ptr():
        return POINTER
    try:
        return _NUMPY[scalar.name]
    except KeyError:
        raise NotInterpretable(f"the interpreter has no number format {scalar}") from None


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether a numpy type is one of the floating-point formats."""
    return dtype.kind == "f" or dtype == BFLOAT16 or dtype in _FP8


def convert(data: Array, dtype: np.dtype[Any]) -> Array:
    """Values in another format; to nearest even, floats to integers by saturation, fp8 by saturation as on NVIDIA."""
    source = data.dtype
    if source == dtype:
        return data
    if source == BFLOAT16 and dtype == np.float32:
        return (data.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    if source == np.float32 and dtype == BFLOAT16:
        return _bfloat16_from_float32(data)
    if is_float(source) and not is_float(dtype):
        return _integer_from_float(data, dtype)
    if dtype in _FP8:
        limit = float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
        return np.clip(data.astype(np.float32), -limit, limit).astype(dtype)
    return data.astype(dtype)


def _bfloat16_from_float32(data: Array) -> Array:
    bits = np.ascontiguousarray(data).view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)
    result = rounded.astype(np.uint16)
    nan = np.isnan(data)
    if nan.any():
        result[nan] = 0x7FC0
    return result.view(BFLOAT16)


def _integer_from_float(data: Array, dtype: np.dtype[Any]) -> Array:
    if dtype == np.bool_:
        truth: Array = data != 0
        return truth
    wide = data if data.dtype == np.float64 else data.astype(np.float64)
    limits = np.iinfo(dtype)
    inside = (wide > float(limits.min) - 1) & (wide < float(limits.max))
    if inside.all():
        return wide.astype(dtype)
    result = np.where(inside, wide, 0).astype(dtype)
    result[wide >= float(limits.max)] = limits.max
    result[wide <= float(limits.min) - 1] = limits.min
    return result


def truncate(data: Array, dtype: np.dtype[Any]) -> Array:
    """A narrower float format, rounded toward zero."""
    result = convert(data, dtype)
    back = convert(result, data.dtype)
    too_far = np.abs(back) > np.abs(data)
    if too_far.any():
        bits = result.view(f"uint{dtype.itemsize * 8}")
        # One less in magnitude: IEEE formats order like their sign-magnitude bits.
        result = np.where(too_far, bits - 1, bits).astype(bits.dtype).view(dtype)
    return result


def tf32(data: Array) -> Array:
    """fp32 values as a tensor core reads them for tf32: the low 13 mantissa bits are ignored.

    Triton feeds registers or shared memory to the instruction without rounding first.
    """
    return (np.ascontiguousarray(data).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def bfloat16_split(data: Array) -> Array:
    """fp32 values as the sum of two bf16, as `input_precision="bf16x3"` multiplies them."""
    high = convert(convert(data, BFLOAT16), np.dtype(np.float32))
    low = convert(convert(data - high, BFLOAT16), np.dtype(np.float32))
    return high + low
