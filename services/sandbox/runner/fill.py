"""Known values in uninitialised memory, so that an op or kernel which leaves elements unwritten is seen."""

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_EMPTY = (
    torch.ops.aten.empty.memory_format,
    torch.ops.aten.empty_strided.default,
    torch.ops.aten.empty_like.default,
    torch.ops.aten.new_empty.default,
    torch.ops.aten.new_empty_strided.default,
)
_INTEGER_FILL = 0x5A


class FillUninitialized(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Fills what torch.empty and its kin return: floats with the value, integers with 0x5A plus its whole part."""

    def __init__(self, value: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._value = value

    @classmethod
    def or_nothing(cls, value: float | None) -> contextlib.AbstractContextManager[Any]:
        """The mode, or nothing for None."""
        return contextlib.nullcontext() if value is None else cls(value)

    def __torch_dispatch__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Fill after the call; everything else passes."""
        result = func(*args, **(kwargs or {}))
        if func in _EMPTY and isinstance(result, Tensor) and result.numel():
            self._fill(result)
        return result

    def _fill(self, tensor: Tensor) -> None:
        if tensor.is_floating_point() or tensor.is_complex():
            tensor.fill_(self._value)
        elif tensor.dtype is torch.bool:
            tensor.fill_(bool(self._value > 0))
        else:
            whole = int(self._value) if abs(self._value) < 1 << 30 else 0
            tensor.fill_((_INTEGER_FILL + whole) & 0x7F)
