"""Where a forward's values come from, followed from tensor to tensor through its counted ATen calls and launches.

Work that nobody counts (NumPy, a list of Python numbers, PyTorch with its dispatch switched off) leaves a tensor that
no counted call has written. And an answer that no generated kernel has a part in has no path from one.
"""

import gc
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import trees

_CONSTANT = 256
"""Elements that forward may bring along by itself: scalars and small tables of constants."""
HELD_BYTES = 1 << 30
"""Of a candidate's own results that are kept to the end, so that nothing unseen takes the address of one."""
_PLAIN = (Tensor, torch.nn.Parameter)


class Provenance:
    """Follows one forward. `inputs` are its tensor leaves; whatever else is alive when it starts is known too.

    `held_bytes` of what is known is kept alive.
    """

    def __init__(self, inputs: Sequence[Tensor], held_bytes: int = 0) -> None:
        alive = [item for item in gc.get_objects() if type(item) in _PLAIN and _has_storage(item)]
        self._seen = {_storage(tensor) for tensor in (*alive, *inputs)}
        self._held: list[Any] = [tensor.untyped_storage() for tensor in alive] if held_bytes else []
        self._left_bytes = held_bytes
        self._inputs = {_storage(tensor): i for i, tensor in enumerate(inputs)}
        self._unread = {i for i, tensor in enumerate(inputs) if tensor.numel() > _CONSTANT}
        self._generated: set[int] = set()
        self.unseen: list[str] = []

    def called(self, reads: Iterable[Tensor], writes: Iterable[Tensor]) -> None:
        """An ATen call: what it writes comes from a kernel if anything that it reads does."""
        self._read(reads := list(reads))
        generated = any(_storage(tensor) in self._generated for tensor in reads)
        self._write(writes, generated=generated)

    def launched(self, reads: Iterable[Tensor], writes: Iterable[Tensor]) -> None:
        """A launch of a generated kernel."""
        self._read(reads)
        self._write(writes, generated=True)

    def summary(self, outputs: Sequence[Tensor]) -> dict[str, Any]:
        """As `replies.Provenance` has it."""
        return {
            "unseen": self.unseen[:10],
            "unread_inputs": sorted(self._unread),
            "from_kernels": any(_storage(tensor) in self._generated for tensor in outputs),
        }

    def _read(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            storage = _storage(tensor)
            self._unread.discard(self._inputs.get(storage, -1))
            if storage not in self._seen and tensor.numel() > _CONSTANT:
                spec = trees.spec(tensor)
                self.unseen.append(f"{spec['dtype']}{spec['shape']}")

    def _write(self, tensors: Iterable[Tensor], *, generated: bool) -> None:
        for tensor in tensors:
            storage = _storage(tensor)
            if storage not in self._seen:
                self._seen.add(storage)
                self._hold(tensor)
            if generated:
                self._generated.add(storage)

    def _hold(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage.nbytes() <= self._left_bytes:
            self._left_bytes -= storage.nbytes()
            self._held.append(storage)


def _has_storage(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.device.type != "meta"


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
