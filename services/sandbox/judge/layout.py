"""Tensors by their specs: sizes, copies that keep strides, views that name each stored element once."""

import torch
from torch import Tensor

from services.contracts import TensorSpec
from services.sandbox.replies import Tree
from services.sandbox.runner.memory import span_elements


def tensor_spec(tensor: Tensor) -> TensorSpec:
    """The layout of a tensor as a message."""
    return TensorSpec(
        shape=list(tensor.shape), stride=list(tensor.stride()), dtype=str(tensor.dtype).removeprefix("torch.")
    )


def dtype_of(spec: TensorSpec) -> torch.dtype:
    """The torch dtype that a spec names. ValueError for an unknown one."""
    dtype = getattr(torch, spec.dtype, None)
    if isinstance(dtype, torch.dtype):
        return dtype
    raise ValueError(f"unknown dtype {spec.dtype!r}")


def is_narrow_float(spec: TensorSpec) -> bool:
    """Floats of 8 bits or fewer: torch stores them on the CPU, but compares and computes nothing with them."""
    dtype = dtype_of(spec)
    return dtype.is_floating_point and dtype.itemsize == 1


def contiguous(spec: TensorSpec) -> TensorSpec:
    """The same shape and dtype with row-major strides."""
    stride, step = [], 1
    for size in reversed(spec.shape):
        stride.append(step)
        step *= max(size, 1)
    return TensorSpec(shape=spec.shape, stride=stride[::-1], dtype=spec.dtype)


def spec_bytes(spec: TensorSpec) -> int:
    """Bytes of the elements that are really stored: a broadcast dimension counts once."""
    count = 1
    for size, stride in zip(spec.shape, spec.stride, strict=True):
        count *= size if stride != 0 or size == 0 else 1
    return count * dtype_of(spec).itemsize


def span_bytes(spec: TensorSpec) -> int:
    """Bytes from the first to the last stored element, gaps included: what holding the tensor takes."""
    return span_elements(spec.shape, spec.stride) * dtype_of(spec).itemsize


def core_view(tensor: Tensor) -> Tensor:
    """A view in which every stored element appears once: broadcast dimensions collapse to size 1.

    Other overlapping layouts (sliding windows) give the flat storage that the tensor spans.
    """
    sizes = [1 if stride == 0 and size else size for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    span = 1 + sum((size - 1) * stride for size, stride in zip(sizes, tensor.stride(), strict=True))
    view = tensor.as_strided(sizes, tensor.stride(), tensor.storage_offset())
    if view.numel() <= span and torch._debug_has_internal_overlap(view) != 1:
        return view
    return tensor.as_strided([span], [1], tensor.storage_offset())


def copy_values(target: Tensor, source: Tensor) -> None:
    """Copy the stored elements between tensors of equal shape and strides."""
    core_view(target).copy_(core_view(source))


def clone_layout(tensor: Tensor) -> Tensor:
    """A copy in fresh memory with the same strides."""
    copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    copy_values(copy, tensor)
    return copy


def same_layout(expected: Tree, got: Tree) -> bool:
    """Whether both trees have the same leaves by shape and dtype; strides of outputs are free."""
    return [(leaf.spec.shape, leaf.spec.dtype) for leaf in expected.leaves] == [
        (leaf.spec.shape, leaf.spec.dtype) for leaf in got.leaves
    ]
