"""Block pointers and tensor descriptors: a base, a shape and strides from which each lane's address follows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from triton._C.libtriton import ir

from .errors import NotInterpretable
from .handle import Handle
from .memory import Memory
from .numeric import Array, numpy_type


@dataclass
class Block:
    """A window of `block_shape` on a strided array; every field but the shape holds one value a program."""

    base: Handle
    shape: Sequence[Handle]
    strides: Sequence[Handle]
    offsets: Sequence[Handle]
    block_shape: tuple[int, ...]
    padding: Any = None

    @property
    def dtype(self) -> Any:
        """Triton's pointer type."""
        return self.base.dtype

    def addresses(self, checked: Sequence[int]) -> tuple[Array, Array | None]:
        """Each lane's address, and the lanes inside the array along the axes `checked`."""
        rank = len(self.block_shape)
        itemsize = numpy_type(self.base.dtype.scalar.element_ty).itemsize
        lanes = _column(self.base.data, rank)
        inside: Array | None = None
        for axis, length in enumerate(self.block_shape):
            along = np.arange(length, dtype=np.int64).reshape(1, *(length if axis == i else 1 for i in range(rank)))
            position = _column(self.offsets[axis].data, rank).astype(np.int64) + along
            distance = position * _column(self.strides[axis].data, rank).astype(np.int64) * itemsize
            lanes = lanes + distance.view(np.uint64)
            if axis in checked:
                here = (position >= 0) & (position < _column(self.shape[axis].data, rank).astype(np.int64))
                inside = here if inside is None else inside & here
        lanes = np.broadcast_to(lanes, (lanes.shape[0], *self.block_shape))
        return lanes, inside

    def at(self, offsets: Sequence[Handle]) -> "Block":
        """The same array seen through a window at other offsets."""
        return replace(self, offsets=list(offsets))


def _column(data: Array, rank: int) -> Array:
    return data.reshape(-1, *(1,) * rank)


class Descriptors:
    """The builder's block-pointer and descriptor operations."""

    memory: Memory

    def create_make_block_ptr(
        self, base: Handle, shape: Any, strides: Any, offsets: Any, block_shape: Any, _: Any
    ) -> Block:
        return Block(base, shape, strides, list(offsets), tuple(block_shape))

    def create_advance(self, block: Block, offsets: Sequence[Handle]) -> Block:
        moved = [Handle(old.data + step.data, old.dtype) for old, step in zip(block.offsets, offsets, strict=True)]
        return block.at(moved)

    def create_tensor_pointer_load(self, block: Block, checked: Sequence[int], padding: Any, *_: Any) -> Handle:
        return self._load_block(block, checked, padding)

    def create_tensor_pointer_store(self, block: Block, value: Handle, checked: Sequence[int], *_: Any) -> None:
        lanes, inside = block.addresses(checked)
        self.memory.store(lanes, value.data, inside)

    def create_make_tensor_descriptor(
        self, base: Handle, shape: Any, strides: Any, block_shape: Any, _: bool, padding: Any = None
    ) -> Block:
        itemsize = numpy_type(base.dtype.element_ty).itemsize
        if (base.data % np.uint64(16)).any():
            raise ValueError("a tensor descriptor's base must be 16-byte aligned")
        for stride in strides[:-1]:
            if (stride.data * itemsize % 16).any():
                raise ValueError("a tensor descriptor's strides must be multiples of 16 bytes")
        if (strides[-1].data != 1).any():
            raise ValueError("a tensor descriptor's last dimension must be contiguous")
        return Block(base, shape, strides, [], tuple(block_shape), padding)

    def create_descriptor_load(self, descriptor: Block, offsets: Sequence[Handle], *_: Any) -> Handle:
        return self._load_block(descriptor.at(offsets), range(len(descriptor.block_shape)), descriptor.padding)

    def create_descriptor_store(self, descriptor: Block, value: Handle, offsets: Sequence[Handle]) -> None:
        lanes, inside = descriptor.at(offsets).addresses(range(len(descriptor.block_shape)))
        self.memory.store(lanes, value.data, inside)

    def create_descriptor_gather(self, descriptor: Block, rows: Handle, column: Handle, _: Any) -> Handle:
        lanes, inside = self._rows(descriptor, rows, column)
        element = descriptor.dtype.scalar.element_ty
        return Handle(self.memory.load(lanes, inside, None, numpy_type(element)), element)

    def create_descriptor_scatter(self, descriptor: Block, value: Handle, rows: Handle, column: Handle) -> None:
        lanes, inside = self._rows(descriptor, rows, column)
        self.memory.store(lanes, value.data, inside)

    def create_descriptor_reduce(self, *_: Any) -> None:
        raise NotInterpretable("a tensor descriptor's atomic operations cannot run in the interpreter")

    def _load_block(self, block: Block, checked: Sequence[int], padding: Any) -> Handle:
        element = block.dtype.scalar.element_ty
        dtype = numpy_type(element)
        lanes, inside = block.addresses(checked)
        other = None
        if padding == ir.PADDING_OPTION.PAD_NAN:
            other = np.full((1,) * lanes.ndim, np.nan).astype(dtype)
        return Handle(self.memory.load(lanes, inside, other, dtype), element)

    def _rows(self, descriptor: Block, rows: Handle, column: Handle) -> tuple[Array, Array | None]:
        """Addresses of whole rows picked one by one: [program, row, column]."""
        width = descriptor.block_shape[-1]
        itemsize = numpy_type(descriptor.dtype.scalar.element_ty).itemsize
        row = rows.data[:, :, None].astype(np.int64)
        across = _column(column.data, 2).astype(np.int64) + np.arange(width, dtype=np.int64)
        stride = _column(descriptor.strides[0].data, 2).astype(np.int64)
        lanes = _column(descriptor.base.data, 2) + ((row * stride + across) * itemsize).view(np.uint64)
        height = _column(descriptor.shape[0].data, 2).astype(np.int64)
        end = _column(descriptor.shape[1].data, 2).astype(np.int64)
        return lanes, (row >= 0) & (row < height) & (across >= 0) & (across < end)
