"""Writes a strided view of a tensor as a person would: view, t, transpose, permute, else as_strided."""

from itertools import permutations

from services.contracts import TensorSpec


def contiguous_stride(shape: list[int]) -> list[int]:
    """Strides in elements of a dense row-major tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return strides[::-1]


def is_contiguous(spec: TensorSpec) -> bool:
    """Whether the elements lie densely in row-major order."""
    dense = contiguous_stride(spec.shape)
    return all(size == 1 or have == want for size, have, want in zip(spec.shape, spec.stride, dense, strict=True))


def same_layout(one: TensorSpec, other: TensorSpec) -> bool:
    """Whether both address the same elements in the same shape."""
    if one.shape != other.shape:
        return False
    pairs = zip(one.shape, one.stride, other.stride, strict=True)
    return all(size == 1 or first == second for size, first, second in pairs)


def view_text(base: str, spec: TensorSpec | None, view: TensorSpec, offset: int, *, own_storage: bool) -> str:
    """An expression for `view`, which starts `offset` elements after `base`.

    `spec` is the base's own layout, where it is known; `own_storage` says that the base starts its storage.
    """
    if spec is not None and offset == 0:
        if same_layout(spec, view):
            return base
        if is_contiguous(spec) and is_contiguous(view) and spec.numel == view.numel:
            return f"{base}.view({', '.join(map(str, view.shape))})" if view.shape else f"{base}.view(())"
        if text := _permuted(base, spec, view) or _split_and_permuted(base, spec, view):
            return text
    start = str(offset) if own_storage else f"{base}.storage_offset() + {offset}" if offset else ""
    tail = f", {start}" if start and start != "0" else ""
    return f"{base}.as_strided({_tuple(view.shape)}, {_tuple(view.stride)}{tail})"


def _permuted(base: str, spec: TensorSpec, view: TensorSpec) -> str | None:
    if len(spec.shape) != len(view.shape) or not 2 <= len(spec.shape) <= 5:
        return None
    for order in permutations(range(len(spec.shape))):
        moved = TensorSpec(
            shape=[spec.shape[i] for i in order], stride=[spec.stride[i] for i in order], dtype=spec.dtype
        )
        if same_layout(moved, view):
            changed = [i for i, j in enumerate(order) if i != j]
            if len(order) == 2:
                return f"{base}.t()"
            if len(changed) == 2:
                return f"{base}.transpose({changed[0]}, {changed[1]})"
            return f"{base}.permute({', '.join(map(str, order))})"
    return None


def _split_and_permuted(base: str, spec: TensorSpec, view: TensorSpec) -> str | None:
    """The whole of a dense tensor in other dimensions, in another order."""
    order = sorted(range(len(view.shape)), key=lambda i: (-view.stride[i], view.shape[i] == 1))
    shape = [view.shape[i] for i in order]
    dense = TensorSpec(shape=shape, stride=contiguous_stride(shape), dtype=spec.dtype)
    if not is_contiguous(spec) or spec.numel != view.numel:
        return None
    return _permuted(f"{base}.view({', '.join(map(str, shape))})", dense, view)


def _tuple(values: list[int]) -> str:
    return f"({', '.join(map(str, values))}{',' if len(values) == 1 else ''})"
