"""What an op's inputs show before forward is called."""

from collections.abc import Iterator, Sequence

from torch import Tensor

from services.contracts import Finding
from services.sandbox.judge.facts import describe_scalars
from services.sandbox.judge.findings import finding
from services.sandbox.judge.layout import is_narrow_float, span_bytes
from services.sandbox.judge.prediction import state_bytes
from services.sandbox.judge.roofline import describe_bytes
from services.sandbox.replies import Leaf, Loaded, Tree

_SLOW_SHARE = 0.25
_STATE_FACTOR = 4
_ENOUGH_VALUES = 32
"""Fewer may all be positive by chance."""


def check_layout(tree: Tree, loaded: Loaded, limit_bytes: int) -> Iterator[Finding]:
    """Findings on structure, sizes, dtypes and strides of the inputs."""
    scalars = describe_scalars(tree, loaded.forward_parameters)
    if scalars:
        yield finding("non_tensor_inputs", ", ".join(scalars))
    if not tree.leaves:
        yield finding("no_tensor_inputs", "Nothing could be varied, so nothing would be tested.")
        return
    empty = [leaf for leaf in tree.leaves if leaf.spec.numel == 0]
    if len(empty) == len(tree.leaves):
        yield finding("empty_inputs", f"{_listed(empty)}: nothing would be tested.")
    elif empty:
        yield finding("some_empty_inputs", _listed(empty))
    yield from _size(tree, limit_bytes)
    for code, leaves in _layouts(tree.leaves):
        if leaves:
            yield finding(code, _listed(leaves))


def check_values(tree: Tree, values: Sequence[Tensor]) -> Iterator[Finding]:
    """Findings on the values of inputs as given."""
    positive = [
        leaf
        for leaf, value in zip(tree.leaves, values, strict=True)
        if value.is_floating_point() and value.numel() >= _ENOUGH_VALUES and bool((value >= 0).all())
    ]
    if positive:
        told = f"{_listed(positive)}: an answer that skips a relu or an abs would be right on them."
        yield finding("all_positive_inputs", told)


def check_state(loaded: Loaded, limit_bytes: int) -> Iterator[Finding]:
    """Findings on parameters and buffers. They cost less than inputs in the interpreter, so they may be larger."""
    if narrow := [f"{entry.name} {entry.spec}" for entry in loaded.state if is_narrow_float(entry.spec)]:
        yield finding("unsupported_tensor", ", ".join(narrow))
    size, limit = state_bytes(loaded), _STATE_FACTOR * limit_bytes
    if size > limit:
        told = f"{describe_bytes(size)} of parameters and buffers; the interpreter's limit is {describe_bytes(limit)}."
        yield finding("needs_gpu_worker", f"This op needs a GPU worker: {told}")


def _layouts(leaves: Sequence[Leaf]) -> Iterator[tuple[str, list[Leaf]]]:
    yield "expanded_input", [leaf for leaf in leaves if _is_expanded(leaf)]
    yield "non_contiguous_inputs", [leaf for leaf in leaves if not _is_expanded(leaf) and not _is_contiguous(leaf)]
    yield "requires_grad", [leaf for leaf in leaves if leaf.requires_grad]
    yield "complex_input", [leaf for leaf in leaves if leaf.spec.dtype.startswith("complex")]
    yield "unsupported_tensor", [leaf for leaf in leaves if is_narrow_float(leaf.spec)]


def _size(tree: Tree, limit_bytes: int) -> Iterator[Finding]:
    size = sum(span_bytes(leaf.spec) for leaf in tree.leaves)
    told = f"{describe_bytes(size)} of inputs; the interpreter's limit is {describe_bytes(limit_bytes)}."
    if size > limit_bytes:
        yield finding("needs_gpu_worker", f"This op needs a GPU worker: {told}")
    elif size > _SLOW_SHARE * limit_bytes:
        yield finding("slow_in_interpreter", told)


def _is_expanded(leaf: Leaf) -> bool:
    return any(stride == 0 and size > 1 for size, stride in zip(leaf.spec.shape, leaf.spec.stride, strict=True))


def _is_contiguous(leaf: Leaf) -> bool:
    step = 1
    for size, stride in zip(reversed(leaf.spec.shape), reversed(leaf.spec.stride), strict=True):
        if size > 1 and stride != step:
            return False
        step *= max(size, 1)
    return True


def _listed(leaves: Sequence[Leaf]) -> str:
    return ", ".join(str(leaf.spec) for leaf in leaves)
