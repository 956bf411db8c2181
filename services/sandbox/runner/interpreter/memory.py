"""Memory of one launch: every tensor argument at a virtual address of its own, each access checked and counted.

Argument i starts at FIRST + i * WINDOW, so an overrun of less than half a window can never land in another argument.
Accesses go through numpy views of the tensor's own memory, from its first to its last element.
"""

import ctypes
import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from .errors import MisalignedAccess, OutOfBounds
from .numeric import STORAGE, Array

FIRST = 1 << 62
WINDOW = 1 << 44
_HALF = WINDOW >> 1
_ALIGNMENT = 0xFFF
_LOWEST = np.uint64(FIRST - _HALF)


class Span:
    """The memory from a tensor's first to its last element, at the address `base` of the kernel's world."""

    def __init__(self, name: str, tensor: torch.Tensor, base: int) -> None:
        extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        self.name = name
        self.tensor = tensor
        self.base = base
        self.itemsize = tensor.element_size()
        self.size_bytes = extent * self.itemsize if tensor.numel() else 0
        self.read: Array | None = None
        self.written: Array | None = None
        self._views: dict[np.dtype[Any], Array] = {}
        self._bytes: Any = None

    def view(self, dtype: np.dtype[Any]) -> Array:
        """The memory as a flat array of `dtype`."""
        if dtype not in self._views:
            if self._bytes is None:
                self._bytes = (ctypes.c_byte * self.size_bytes).from_address(self.tensor.data_ptr())
            count = self.size_bytes // dtype.itemsize
            self._views[dtype] = np.frombuffer(self._bytes, dtype=dtype, count=count)
        return self._views[dtype]

    def touched(self, which: str) -> int:
        """Distinct bytes in the map `which`, "read" or "written"."""
        marks = getattr(self, which)
        return 0 if marks is None else int(np.count_nonzero(marks)) * self.itemsize


_PLAIN = (torch.Tensor, torch.nn.Parameter)

Part = tuple[Span, Array, Array | None]
"""A span, each lane's index in it (in elements of the access), and which lanes are meant (None: all)."""


class Memory:
    """What one launch may touch. `programs` is the length of the batch that runs now."""

    def __init__(self, kernel: str, filename: str, count: bool) -> None:
        self.kernel = kernel
        self.filename = filename
        self.count = count
        self.spans: list[Span] = []
        self.requested_bytes = 0
        self.programs = 1
        self.undoable = False
        self.program_id: Callable[[int], tuple[int, int, int]] = lambda row: (row, 0, 0)
        self._undo: list[tuple[Array, Any, Array]] = []
        self._known: list[Span] | None = None

    def add(self, name: str, tensor: torch.Tensor) -> int:
        """Gives a tensor argument its own virtual address."""
        base = FIRST + len(self.spans) * WINDOW + (tensor.data_ptr() & _ALIGNMENT)
        self.spans.append(Span(name, tensor, base))
        return base

    def touched(self, which: str) -> list[torch.Tensor]:
        """Tensors of which anything was "read" or "written", those behind a table of pointers too; needs `count`."""
        return [span.tensor for span in (*self.spans, *(self._known or ())) if getattr(span, which) is not None]

    def load(self, lanes: Array, mask: Array | None, other: Array | None, dtype: np.dtype[Any]) -> Array:
        """Values at the addresses `lanes`; masked-off lanes give `other`, or zero."""
        lanes, mask = _agree(lanes, mask)
        if mask is not None and not mask.any():
            return _others(lanes.shape, other, dtype)
        stored = STORAGE.get(dtype, dtype)
        result: Array | None = None
        for span, index, part in self._locate(lanes, mask, dtype.itemsize, "load"):
            chosen = index if part is None else np.where(part, index, 0)
            values = span.view(stored).take(chosen, mode="wrap").view(dtype)
            if self.count:
                self._mark(span, "read", index, part, dtype.itemsize, lanes.shape[0])
            if part is not None:
                values = np.where(part, values, _others(lanes.shape, other, dtype) if result is None else result)
            result = values
        if result is None:
            raise RuntimeError("a load found no memory")
        return result

    def store(self, lanes: Array, values: Array, mask: Array | None) -> None:
        """Writes `values`; where lanes collide the last one wins."""
        lanes, mask = _agree(lanes, mask, values)
        if mask is not None and not mask.any():
            return
        shape = np.broadcast_shapes(lanes.shape, values.shape)
        lanes, values = np.broadcast_to(lanes, shape), np.broadcast_to(values, shape)
        stored = STORAGE.get(values.dtype)
        if stored is not None:
            values = values.view(stored)
        for span, index, part in self._locate(lanes, mask, values.dtype.itemsize, "store"):
            if self.count:
                self._mark(span, "written", index, part, values.dtype.itemsize, shape[0])
            chosen, given = (index.ravel(), values.ravel()) if part is None else (index[part], values[part])
            where = _consecutive(chosen)
            view = span.view(values.dtype)
            if self.undoable:
                self._undo.append((view, where, view[where].copy()))
            view[where] = given

    def atomic(
        self,
        lanes: Array,
        mask: Array | None,
        values: tuple[Array, ...],
        operate: Callable[[Array, Array, tuple[Array, ...]], Array],
    ) -> Array:
        """Applies `operate(memory, index, values) -> old values` to the active lanes, every program for itself."""
        shape = np.broadcast_shapes(
            lanes.shape, *(value.shape for value in values), (self.programs,) + (1,) * (lanes.ndim - 1)
        )
        if mask is not None:
            shape = np.broadcast_shapes(shape, mask.shape)
            mask = None if mask.all() else np.broadcast_to(mask, shape)
        lanes = np.broadcast_to(lanes, shape)
        values = tuple(np.broadcast_to(value, shape) for value in values)
        dtype = values[0].dtype
        result = np.zeros(shape, dtype)
        if mask is not None and not mask.any():
            return result
        for span, index, part in self._locate(lanes, mask, dtype.itemsize, "atomic"):
            active = np.ones(shape, bool) if part is None else part
            if self.count:
                for which in ("read", "written"):
                    self._mark(span, which, index, part, dtype.itemsize, shape[0])
            chosen = index[active]
            view = span.view(dtype)
            if self.undoable:
                self._undo.append((view, chosen, view[chosen].copy()))
            result[active] = operate(view, chosen, tuple(value[active] for value in values))
        return result

    def undo(self) -> None:
        """Takes back every write since the last `forget`."""
        while self._undo:
            view, where, old = self._undo.pop()
            view[where] = old

    def forget(self) -> None:
        """Makes the writes so far final."""
        self._undo.clear()

    def _locate(self, lanes: Array, mask: Array | None, itemsize: int, access: str) -> Iterator[Part]:
        first = int(lanes.item(0 if mask is None else int(mask.argmax())))
        number = (first - FIRST + _HALF) >> 44
        if 0 <= number < len(self.spans):
            span = self.spans[number]
            index = self._index(span, lanes, mask, itemsize, access)
            if index is not None:
                yield span, index, mask
                return
        yield from self._locate_each(lanes, mask, itemsize, access)

    def _index(self, span: Span, lanes: Array, mask: Array | None, itemsize: int, access: str) -> Array | None:
        """Each lane's element in `span`, or None where an active lane lies outside of it."""
        offset = lanes - np.uint64(span.base)
        limit = span.size_bytes - itemsize
        if limit < 0:
            return None
        if int(offset.max()) > limit:
            if mask is None:
                return None
            outside = offset > np.uint64(limit)
            outside &= mask
            if outside.any():
                return None
        if itemsize == 1:
            return offset.view(np.int64)
        if (itemsize > span.itemsize or span.base % itemsize) and self._misaligned(span, offset, mask, itemsize):
            raise self._fault(MisalignedAccess, access, span, offset.view(np.int64) // itemsize, mask, None, itemsize)
        return (offset >> np.uint64(itemsize.bit_length() - 1)).view(np.int64)

    def _misaligned(self, span: Span, offset: Array, mask: Array | None, itemsize: int) -> bool:
        off = (offset + np.uint64(span.base % itemsize)) & np.uint64(itemsize - 1)
        return bool((off if mask is None else off[mask]).any())

    def _locate_each(self, lanes: Array, mask: Array | None, itemsize: int, access: str) -> Iterator[Part]:
        """The slow way: lanes of several arguments, addresses loaded from memory, or an overrun."""
        active = np.ones(lanes.shape, bool) if mask is None else mask
        owner = ((lanes - _LOWEST) >> np.uint64(44)).view(np.int64)
        owner = np.where((lanes >= _LOWEST) & (owner < len(self.spans)), owner, -1)
        parts: list[Part] = []
        for number in np.unique(owner[active]):
            part = active & (owner == number)
            if number < 0:
                parts += self._locate_known(lanes, part, itemsize, access)
                continue
            span = self.spans[number]
            index = self._index(span, lanes, part, itemsize, access)
            if index is None:
                offset = (lanes - np.uint64(span.base)).view(np.int64)
                outside = part & ((offset < 0) | (offset > span.size_bytes - itemsize))
                raise self._fault(OutOfBounds, access, span, offset // itemsize, outside, active, itemsize)
            parts.append((span, index, part))
        yield from parts

    def _locate_known(self, lanes: Array, active: Array, itemsize: int, access: str) -> list[Part]:
        """Real addresses, as a table of pointers holds them: any living tensor's memory is allowed."""
        if self._known is None:
            tensors = [item for item in gc.get_objects() if type(item) in _PLAIN and _has_memory(item)]
            self._known = [Span("", tensor, tensor.data_ptr()) for tensor in tensors]
        parts: list[Part] = []
        left = active.copy()
        for span in self._known:
            inside = (
                left
                & (lanes >= np.uint64(span.base))
                & (lanes + np.uint64(itemsize) <= np.uint64(span.base + span.size_bytes))
            )
            if inside.any():
                index = self._index(span, lanes, inside, itemsize, access)
                if index is not None:
                    parts.append((span, index, inside))
                    left &= ~inside
        if left.any():
            nobody = Span("", torch.empty(0), 0)
            raise self._fault(OutOfBounds, access, nobody, lanes.view(np.int64), left, active, itemsize)
        return parts

    def _fault(
        self, kind: type, access: str, span: Span, offset: Array, bad: Array | None, active: Array | None, itemsize: int
    ) -> Exception:
        everyone = np.ones(offset.shape, bool)
        bad = everyone if bad is None else bad
        first = int(bad.argmax())
        row = first // max(1, bad.size // bad.shape[0])
        error: Exception = kind(
            kernel=self.kernel,
            access=access,
            argument=span.name,
            offset=int(offset.item(first)),
            elements=span.size_bytes // itemsize,
            lanes=int(bad.sum()),
            active=int((everyone if active is None else active).sum()),
            program=self.program_id(row),
            line=_line_in(self.filename),
        )
        return error

    def _mark(self, span: Span, which: str, index: Array, mask: Array | None, itemsize: int, rows: int) -> None:
        chosen = index.ravel() if mask is None else index[mask]
        everyone = self.programs if rows == 1 else 1
        self.requested_bytes += chosen.size * itemsize * everyone
        marks: Array | None = getattr(span, which)
        if marks is None:
            marks = np.zeros(span.size_bytes // span.itemsize, bool)
            setattr(span, which, marks)
        if itemsize == span.itemsize:
            marks[_consecutive(chosen)] = True
        elif itemsize < span.itemsize:
            marks[chosen // (span.itemsize // itemsize)] = True
        else:
            ratio = itemsize // span.itemsize
            for step in range(ratio):
                marks[chosen * ratio + step] = True


def _agree(lanes: Array, mask: Array | None, *others: Array) -> tuple[Array, Array | None]:
    """Addresses and mask in one shape; a mask that masks nothing is dropped."""
    if mask is None or mask.all():
        return lanes, None
    shape = np.broadcast_shapes(lanes.shape, mask.shape, *(other.shape for other in others))
    return np.broadcast_to(lanes, shape), np.broadcast_to(mask, shape)


def _others(shape: tuple[int, ...], other: Array | None, dtype: np.dtype[Any]) -> Array:
    return np.zeros((1,) * len(shape), dtype) if other is None else other


def _consecutive(index: Array) -> Any:
    """A slice where the indices rise by one, which numpy copies much faster; the indices themselves otherwise."""
    count = index.size
    if count > 1 and index[-1] - index[0] == count - 1 and (index[1:] - index[:-1] == 1).all():
        start = int(index[0])
        return slice(start, start + count)
    return index


def _has_memory(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.layout == torch.strided and tensor.numel() > 0


def _line_in(filename: str) -> int | None:
    """The line of the innermost frame of the kernel's file."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename == filename:
            return frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return None
