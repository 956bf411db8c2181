"""Tensor methods for fake CUDA tensors in a torch without CUDA.

Three methods ask for a CUDA device guard before they dispatch, which such a torch does not have; these forms of them
only dispatch.
"""

from types import EllipsisType
from typing import Any

import torch

_aten = torch.ops.aten
_originals = {name: getattr(torch.Tensor, name) for name in ("__getitem__", "__setitem__", "copy_")}


def methods() -> dict[str, Any]:
    """Replacements by method name; tensors of other devices get the original."""
    return {"__getitem__": _getitem, "__setitem__": _setitem, "copy_": _copy}


def _getitem(tensor: torch.Tensor, index: Any) -> Any:
    if tensor.device.type != "cuda":
        return _originals["__getitem__"](tensor, index)
    view, indices = _basic(tensor, index)
    return _aten.index.Tensor(view, indices) if indices else view


def _setitem(tensor: torch.Tensor, index: Any, value: Any) -> None:
    if tensor.device.type != "cuda":
        _originals["__setitem__"](tensor, index, value)
        return
    view, indices = _basic(tensor, index)
    source = value if isinstance(value, torch.Tensor) else view.new_full((), value)
    if indices:
        _aten.index_put_.default(view, indices, source)
    else:
        _aten.copy_.default(view, source)


def _copy(tensor: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> Any:
    if tensor.device.type != "cuda":
        return _originals["copy_"](tensor, source, non_blocking)
    return _aten.copy_.default(tensor, source, non_blocking)


def _basic(tensor: torch.Tensor, index: Any) -> tuple[torch.Tensor, list[torch.Tensor | None]]:
    """Applies integers, slices, None and Ellipsis; gives the tensor indices left, one for each dimension."""
    items = list(index) if isinstance(index, tuple) else [index]
    taken = sum(1 for item in items if item is not None and not isinstance(item, EllipsisType))
    view, dimension = tensor, 0
    indices: list[torch.Tensor | None] = []
    for item in items:
        if isinstance(item, EllipsisType):
            skipped = tensor.dim() - taken
            indices += [None] * skipped
            dimension += skipped
        elif item is None:
            view = _aten.unsqueeze.default(view, dimension)
            indices.append(None)
            dimension += 1
        elif isinstance(item, slice):
            view = _aten.slice.Tensor(view, dimension, item.start, item.stop, item.step or 1)
            indices.append(None)
            dimension += 1
        elif isinstance(item, torch.Tensor):
            indices.append(item)
            dimension += 1
        else:
            view = _aten.select.int(view, dimension, int(item))
    while indices and indices[-1] is None:
        indices.pop()
    return view, indices
