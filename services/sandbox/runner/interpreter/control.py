"""Control flow of kernels: rewritten kernels call these where Python would ask a tensor for its truth or its value."""

import builtins
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import triton.language as tl

from .errors import Diverged, UnsupportedLanguage
from .handle import Handle
from .numeric import Array


def decide(condition: Any) -> bool:
    """The truth of a condition that all programs of the batch share; Diverged where they do not."""
    if isinstance(condition, tl.tensor):
        return bool(_shared(condition))
    return bool(getattr(condition, "value", condition)) if isinstance(condition, tl.constexpr) else bool(condition)


def both(first: Any, rest: Callable[[], Any]) -> Any:
    """`first and rest`; tensors are combined lane by lane, as Triton's compiler does it."""
    if isinstance(first, tl.tensor):
        return first.logical_and(_tensor(rest()))
    if not decide(first):
        return first
    return rest()


def either(first: Any, rest: Callable[[], Any]) -> Any:
    """`first or rest`."""
    if isinstance(first, tl.tensor):
        return first.logical_or(_tensor(rest()))
    if decide(first):
        return first
    return rest()


def negate(value: Any) -> Any:
    """`not value`."""
    return value.__not__() if isinstance(value, tl.tensor) else not decide(value)


def smallest(*values: Any, **options: Any) -> Any:
    """Python's `min` inside a kernel."""
    return _fold(tl.minimum, builtins.min, values, options)


def largest(*values: Any, **options: Any) -> Any:
    """Python's `max` inside a kernel."""
    return _fold(tl.maximum, builtins.max, values, options)


def loop_range(first: Any, last: Any = None, step: Any = None, **_: Any) -> Iterator[Any]:
    """`range` and `tl.range`: int32 or int64 scalars, one value a program; only the number of turns must be shared."""
    start, stop = (0, first) if last is None else (first, last)
    starts, stops, steps = (_integers(bound) for bound in (start, stop, 1 if step is None else step))
    if not steps.all():
        raise ValueError("range() with a step of 0")
    turns = np.maximum(-((starts - stops) // steps), 0)
    wide = any(isinstance(bound, tl.tensor) and bound.dtype.primitive_bitwidth == 64 for bound in (start, stop, step))
    triton_type = tl.int64 if wide else tl.int32
    dtype = np.int64 if wide else np.int32
    for turn in builtins.range(int(_agreed(turns))):
        yield tl.tensor(Handle((starts + turn * steps).astype(dtype), triton_type), triton_type)


def static_range(first: Any, last: Any = None, step: Any = None) -> range:
    """`tl.static_range`: plain integers."""
    bounds = [int(_shared(bound)) for bound in (first, last, step) if bound is not None]
    return builtins.range(*bounds)


def static_assert(condition: Any, message: str = "") -> None:
    """`tl.static_assert`."""
    if not decide(condition):
        raise AssertionError(f"tl.static_assert failed: {getattr(message, 'value', message)}")


def as_index(value: Any) -> int:
    """A tensor used as a Python index."""
    return int(_shared(value))


def _shared(value: Any) -> Any:
    if not isinstance(value, tl.tensor):
        return getattr(value, "value", value)
    data = value.handle.data
    if value.type.is_block() and data[0].size > 1:
        raise UnsupportedLanguage(
            f"a block of shape {list(value.shape)} cannot be a condition or an index: use tl.where"
        )
    return _agreed(data.reshape(-1))


def _agreed(data: Array) -> Any:
    if data.size > 1 and (data != data[0]).any():
        raise Diverged(data)
    return data[0]


def _integers(bound: Any) -> Array:
    if isinstance(bound, tl.tensor):
        if not bound.dtype.is_int():
            raise TypeError(f"a range bound must be an integer, got {bound.dtype}")
        data: Array = bound.handle.data.reshape(-1).astype(np.int64)
        return data
    value = getattr(bound, "value", bound)
    if not isinstance(value, int):
        raise TypeError(f"a range bound must be an integer, got {type(value).__name__}")
    return np.array([value], np.int64)


def _tensor(value: Any) -> Any:
    if isinstance(value, tl.tensor):
        return value
    truth = decide(value)
    return tl.tensor(Handle(np.array([truth]), tl.int1), tl.int1)


def _fold(combine: Callable[..., Any], plain: Callable[..., Any], values: tuple[Any, ...], options: Any) -> Any:
    if not any(isinstance(value, tl.tensor) for value in values):
        return plain(*(getattr(value, "value", value) for value in values), **options)
    result = values[0]
    for value in values[1:]:
        result = combine(result, value)
    return result
