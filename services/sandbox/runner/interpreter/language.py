"""Triton's language module made ready once: builtins get our semantic layer, control flow and reductions are ours.

Triton's own interpreter patches the module at every launch and device call, which costs more than the kernel.
"""

import inspect
import math
from collections.abc import Callable, Iterable
from typing import Any

import triton
import triton.language as tl
from triton.language.semantic import TritonSemantic

from . import control, reductions
from .builder import Builder

BUILDER = Builder()


class Semantic(TritonSemantic):  # type: ignore[misc]
    """Triton's own rules, with a short way for the commonest case."""

    def broadcast_impl_value(self, lhs: Any, rhs: Any) -> Any:
        """Two operands in one shape."""
        if lhs.type.is_block() and rhs.type.is_block() and lhs.handle.data.shape[1:] == rhs.handle.data.shape[1:]:
            return lhs, rhs
        return super().broadcast_impl_value(lhs, rhs)


SEMANTIC = Semantic(BUILDER)


def prepare() -> None:
    """Patches `triton.language` for the rest of the process."""
    for owner in (tl, tl.core, tl.math, tl.tensor, tl.core.tensor_descriptor_base):
        _bind_builtins(owner)
    for owner in (tl, tl.core):
        owner.range = control.loop_range
        owner.static_range = control.static_range
        owner.static_assert = control.static_assert
        owner.static_print = print
        owner.reduce = reductions.reduce
        owner.associative_scan = reductions.associative_scan
        for hint in ("multiple_of", "max_contiguous", "max_constancy"):
            setattr(owner, hint, _hint)
    tl.tensor.reduce = reductions.reduce
    tl.tensor.associative_scan = reductions.associative_scan
    tl.tensor.__index__ = control.as_index
    tl.tensor.__repr__ = tl.tensor.__str__ = lambda self: str(self.handle.data)
    tl.tensor.T = property(_transposed)
    # Our builder takes Triton's types as they are: there is no IR to make.
    for kind in (tl.dtype, tl.block_type, tl.pointer_type):
        kind.to_ir = lambda self, builder: self
    _remember_shapes()


def _remember_shapes() -> None:
    """Makes block types and tensors share the shapes that they would build anew: half of a small kernel's time."""
    states: dict[tuple[str, tuple[int, ...]], dict[str, Any]] = {}
    make_type = tl.block_type.__init__
    scalar_layout = _layout(())

    def block_type(self: Any, element_ty: Any, shape: Any) -> None:
        if type(element_ty) is not tl.dtype:
            make_type(self, element_ty, shape)
            return
        key = element_ty.name, tuple(getattr(size, "value", size) for size in shape)
        if key not in states:
            make_type(self, element_ty, shape)
            states[key] = {**vars(self), "layout": _layout(self.shape)}
        vars(self).update(states[key])

    def tensor(self: Any, handle: Any, kind: Any) -> None:
        self.handle = handle
        self.type = kind
        self.dtype = kind.scalar
        if kind.is_block():
            self.shape, self.numel = vars(kind).get("layout") or _layout(kind.shape)
        else:
            self.shape, self.numel = scalar_layout

    tl.block_type.__init__ = block_type
    tl.tensor.__init__ = tensor


def _layout(shape: Iterable[Any]) -> tuple[Any, Any]:
    """A tensor's shape and number of elements in Triton's own types."""
    sizes = [getattr(size, "value", size) for size in shape]
    return tl.tuple([tl.constexpr(size) for size in sizes]), tl.constexpr(math.prod(sizes))


def _bind_builtins(owner: Any) -> None:
    for name, member in inspect.getmembers(owner):
        if tl.core.is_builtin(member) and not getattr(member, "bound_by_interpreter", False):
            setattr(owner, name, bound(member))


def bound(member: Callable[..., Any]) -> Callable[..., Any]:
    """A builtin that needs no semantic layer from its caller."""
    inner = inspect.unwrap(member)

    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs["_semantic"] = SEMANTIC
        return inner(*args, **kwargs)

    call.__name__ = getattr(member, "__name__", "builtin")
    call.__doc__ = member.__doc__
    call.__triton_builtin__ = True  # type: ignore[attr-defined]
    call.bound_by_interpreter = True  # type: ignore[attr-defined]
    return call


def _hint(input: Any, *_: Any, **__: Any) -> Any:
    return input


def _transposed(self: Any) -> Any:
    return triton.language.trans(self)
