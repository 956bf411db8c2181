"""`tl.reduce` and `tl.associative_scan` on whole slices: a step of the tree at once, not an element at a time."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import triton.language as tl

from .handle import Handle
from .numeric import Array, numpy_type

Combine = Callable[..., Any]
_MINIMA = ("_argmin_combine_tie_break_left",)
_MAXIMA = ("_argmax_combine_tie_break_left",)


def reduce(input: Any, axis: Any, combine_fn: Any, keep_dims: Any = False, **_: Any) -> Any:
    """Reduces a tensor, or a tuple of tensors, along one axis or (None) all of them."""
    if isinstance(input, tl.tensor):
        return reduce((input,), axis, combine_fn, keep_dims)[0]
    rank = len(input[0].shape)
    axis = _plain(axis)
    arrays = [tensor.handle.data for tensor in input]
    if axis is None:
        arrays = [array.reshape(array.shape[0], -1) for array in arrays]
        position = 1
    else:
        if not -rank <= axis < rank:
            raise ValueError(f"axis {axis} is out of range for a block of rank {rank}")
        position = axis % rank + 1
    types = [tensor.dtype for tensor in input]
    results = _reduce_fast(arrays, position, combine_fn)
    if results is not None and types[0].is_floating():
        _count(arrays[0])
    if results is None:
        results = _reduce_tree(arrays, types, position, combine_fn)
    if _plain(keep_dims):
        shape = (
            [1] * rank if axis is None else [1 if i == axis % rank else int(s) for i, s in enumerate(input[0].shape)]
        )
        results = [result.reshape(result.shape[0], *shape) for result in results]
    return tuple(_tensor(result, kind) for result, kind in zip(results, types, strict=True))


def associative_scan(input: Any, axis: Any, combine_fn: Any, reverse: Any = False, **_: Any) -> Any:
    """Inclusive scan of a tensor, or a tuple of tensors, along one axis."""
    if isinstance(input, tl.tensor):
        return associative_scan((input,), axis, combine_fn, reverse)[0]
    rank = len(input[0].shape)
    axis = _plain(axis)
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is out of range for a block of rank {rank}")
    position = axis % rank + 1
    arrays = [tensor.handle.data for tensor in input]
    types = [tensor.dtype for tensor in input]
    backwards = _plain(reverse)
    if backwards:
        arrays = [np.flip(array, position) for array in arrays]
    results = _scan(arrays, types, position, combine_fn)
    if backwards:
        results = [np.flip(result, position) for result in results]
    return tuple(_tensor(result, kind) for result, kind in zip(results, types, strict=True))


def _reduce_fast(arrays: Sequence[Array], axis: int, combine: Any) -> list[Array] | None:
    """Triton's own sums and extrema, where numpy gives what the tree would give."""
    data = arrays[0]
    name = getattr(combine, "__name__", "") if getattr(combine, "fn", None) in _standard() else ""
    if name == "_sum_combine":
        # numpy adds halves in float32; the GPU rounds each step, and so does the tree.
        return None if data.dtype.itemsize < 4 and data.dtype.kind not in "iub" else [data.sum(axis, dtype=data.dtype)]
    if name == "_elementwise_max":
        return [np.fmax.reduce(data, axis)] if data.dtype.kind == "f" else [data.max(axis)]
    if name == "_elementwise_min":
        return [np.fmin.reduce(data, axis)] if data.dtype.kind == "f" else [data.min(axis)]
    if name in _MINIMA + _MAXIMA and len(arrays) == 2 and not (data.dtype.kind == "f" and np.isnan(data).any()):
        chosen = data.argmin(axis, keepdims=True) if name in _MINIMA else data.argmax(axis, keepdims=True)
        values, indices = np.broadcast_arrays(data, arrays[1])
        chosen = np.broadcast_to(chosen, tuple(1 if i == axis else size for i, size in enumerate(values.shape)))
        return [np.take_along_axis(array, chosen, axis).squeeze(axis) for array in (values, indices)]
    return None


def _reduce_tree(arrays: Sequence[Array], types: Sequence[Any], axis: int, combine: Combine) -> list[Array]:
    current = [np.moveaxis(array, axis, 1) for array in arrays]
    length = current[0].shape[1]
    while length > 1:
        length //= 2
        left = [_tensor(array[:, :length], kind) for array, kind in zip(current, types, strict=True)]
        right = [_tensor(array[:, length:], kind) for array, kind in zip(current, types, strict=True)]
        combined = _combined(combine(*left, *right), types)
        shape = (length, *current[0].shape[2:])
        current = [np.broadcast_to(array, (array.shape[0], *shape)) for array in combined]
    return [array[:, 0] for array in current]


def _scan(arrays: Sequence[Array], types: Sequence[Any], axis: int, combine: Any) -> list[Array]:
    name = getattr(combine, "__name__", "") if getattr(combine, "fn", None) in _standard() else ""
    if arrays[0].dtype.kind in "iu" or arrays[0].dtype.itemsize >= 4:
        if name == "_sum_combine":
            return [np.cumsum(arrays[0], axis, dtype=arrays[0].dtype)]
        if name == "_prod_combine":
            return [np.cumprod(arrays[0], axis, dtype=arrays[0].dtype)]
    return _scan_steps(arrays, types, axis, combine)


def _scan_steps(arrays: Sequence[Array], types: Sequence[Any], axis: int, combine: Combine) -> list[Array]:
    """Hillis and Steele's scan: log2(n) combinations of the whole block with itself, shifted."""
    current = list(arrays)
    length = current[0].shape[axis]
    place = np.arange(length).reshape(tuple(length if i == axis else 1 for i in range(current[0].ndim)))
    distance = 1
    while distance < length:
        shifted = [_tensor(np.roll(array, distance, axis), kind) for array, kind in zip(current, types, strict=True)]
        here = [_tensor(array, kind) for array, kind in zip(current, types, strict=True)]
        combined = _combined(combine(*shifted, *here), types)
        current = [np.where(place >= distance, new, old) for new, old in zip(combined, current, strict=True)]
        distance *= 2
    return current


def _count(data: Array) -> None:
    """One operation for each element, as in the reductions that go step by step."""
    from .language import BUILDER

    BUILDER.count(data)


def _combined(result: Any, types: Sequence[Any]) -> list[Array]:
    values = result if isinstance(result, (tuple, tl.tuple)) else (result,)
    arrays = []
    for value, kind in zip(values, types, strict=True):
        data = value.handle.data if isinstance(value, tl.tensor) else np.array([_plain(value)])
        arrays.append(data.astype(numpy_type(kind), copy=False))
    return arrays


def _tensor(data: Array, kind: Any) -> Any:
    shape = list(data.shape[1:])
    return tl.tensor(Handle(data, kind.scalar), tl.block_type(kind.scalar, shape) if shape else kind.scalar)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value


def _standard() -> set[Any]:
    """The Python functions behind Triton's own combine functions; a user's function of that name is none of them."""
    names = ("_sum_combine", "_prod_combine", "_elementwise_max", "_elementwise_min", *_MINIMA, *_MAXIMA)
    return {function.fn for name in names if (function := getattr(tl.standard, name, None)) is not None}
