"""Fenced host memory: memfd between inaccessible pages."""

import ctypes
import fcntl
import hashlib
import itertools
import mmap
import os
import weakref
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from services.contracts import TensorSpec
from services.sandbox.runner.memory import ALIGNMENT, dtype_of, map_fenced, span_elements, tensor_on

_CANARY = bytes(range(0xB1, 0xC1))
_POISON_FLOAT = 0xFF
"""All ones is a NaN in every IEEE-like format."""
_POISON_INTEGER = 0xA5
_keys = itertools.count(1)


class HostBuffer:
    """One tensor in a sealed memfd, its last byte less than 16 bytes before the guard region."""

    def __init__(self, spec: TensorSpec) -> None:
        itemsize = dtype_of(spec.dtype).itemsize
        if len(spec.shape) != len(spec.stride) or min([0, *spec.shape, *spec.stride]) < 0:
            raise ValueError(f"no tensor has shape {spec.shape} with stride {spec.stride}")
        self.spec = spec
        self.key = next(_keys)
        self._span_bytes = span_elements(spec.shape, spec.stride) * itemsize
        padded = -(-self._span_bytes // ALIGNMENT) * ALIGNMENT
        self._size_bytes = -(-(padded + len(_CANARY)) // mmap.PAGESIZE) * mmap.PAGESIZE
        self._offset = self._size_bytes - padded
        self._fd = _sealed_memfd(self._size_bytes)
        self._close = weakref.finalize(self, os.close, self._fd)
        self._mapped = map_fenced(self._fd, self._size_bytes)
        self._tensor = tensor_on(self._mapped, self._offset, spec.shape, spec.stride, spec.dtype)
        self._write(0, _canary(self._offset))
        self._write(self._end, _canary(self._size_bytes - self._end))

    @property
    def tensor(self) -> Tensor:
        """The judge's own view."""
        return self._tensor

    @property
    def fd(self) -> int:
        """The memfd."""
        return self._fd

    def describe(self) -> dict[str, object]:
        """Layout for `runner.memory.attach`."""
        return {"key": self.key, "size_bytes": self._size_bytes, "offset": self._offset, **self.spec.model_dump()}

    def poison(self) -> None:
        """NaN in floats, large odd values in integers, false in bools."""
        dtype = dtype_of(self.spec.dtype)
        byte = _POISON_FLOAT if dtype.is_floating_point or dtype.is_complex else _POISON_INTEGER
        ctypes.memset(self._address + self._offset, 0 if dtype is torch.bool else byte, self._span_bytes)

    def canaries_intact(self) -> bool:
        """Whether every byte beside the tensor is as it was."""
        before, after = self._offset, self._size_bytes - self._end
        return self._read(0, before) == _canary(before) and self._read(self._end, after) == _canary(after)

    def checksum(self) -> str:
        """BLAKE2b of the span."""
        view = memoryview(self._mapped)[self._offset : self._end]
        return hashlib.blake2b(view, digest_size=16).hexdigest()

    def close(self) -> None:
        """Close the descriptor; the memory goes with the last tensor that views it."""
        self._close()

    @property
    def _end(self) -> int:
        return self._offset + self._span_bytes

    @property
    def _address(self) -> int:
        return ctypes.addressof(self._mapped)

    def _read(self, offset: int, count: int) -> bytes:
        return ctypes.string_at(self._address + offset, count)

    def _write(self, offset: int, data: bytes) -> None:
        ctypes.memmove(self._address + offset, data, len(data))


class HostFence:
    """Fenced buffers in host memory. Every buffer still open is closed with the fence."""

    def __init__(self) -> None:
        self._open: weakref.WeakSet[HostBuffer] = weakref.WeakSet()

    def allocate(self, spec: TensorSpec) -> HostBuffer:
        """Zero-filled memory of any dtype and any non-negative strides, overlapping ones included."""
        buffer = HostBuffer(spec)
        self._open.add(buffer)
        return buffer

    def close(self) -> None:
        """Close every buffer that is still open."""
        for buffer in list(self._open):
            buffer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _sealed_memfd(size_bytes: int) -> int:
    """A memfd that nobody can resize: a runner that shrank it would kill the judge by SIGBUS."""
    fd = os.memfd_create("fence", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size_bytes)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return fd


def _canary(count: int) -> bytes:
    return (_CANARY * (count // len(_CANARY) + 1))[:count]
