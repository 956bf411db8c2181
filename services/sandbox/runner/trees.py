"""Nested values as JSON, their tensors pulled out in order. The judge reads the form back as `replies.Tree`."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

MAX_LEAVES = 4096
MAX_DEPTH = 32


class UnsupportedValue(TypeError):
    """A value that cannot cross between runners; the message says where it is and what may be used instead."""


def encode(value: Any, leaves: list[Tensor], path: str = "", depth: int = 0) -> dict[str, Any]:
    """The structure of a value; its tensors are appended to `leaves`. UnsupportedValue for anything else."""
    if depth > MAX_DEPTH:
        raise UnsupportedValue(f"values are nested deeper than {MAX_DEPTH} levels at {path[:80]}")
    if isinstance(value, Tensor):
        return _encode_tensor(value, leaves, path)
    if value is None or isinstance(value, bool | int | str):
        return {"value": value}
    if isinstance(value, float):
        return {"value": value} if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {"dict": {_key(key, path): _encode_item(value, key, leaves, path, depth) for key in value}}
    if isinstance(value, list | tuple):
        items = [encode(item, leaves, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
        return {"list" if isinstance(value, list) else "tuple": items}
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise UnsupportedValue(
        f"{_place(path)} is a {kind}: use tensors, numbers, strings, booleans, None, and lists, tuples or dicts of them"
    )


def decode(node: Any, tensors: Sequence[Tensor]) -> Any:
    """The value of a structure, leaf i being tensors[i]."""
    ((tag, body),) = node.items()
    if tag == "tensor":
        return tensors[body]
    if tag == "dict":
        return {key: decode(item, tensors) for key, item in body.items()}
    if tag in ("list", "tuple"):
        items = [decode(item, tensors) for item in body]
        return items if tag == "list" else tuple(items)
    return _SCALARS[tag](body)


def describe(tensor: Tensor) -> dict[str, Any]:
    """Layout of a tensor, as `replies.Leaf` has it."""
    return {"spec": spec(tensor), "requires_grad": tensor.requires_grad}


def spec(tensor: Tensor) -> dict[str, Any]:
    """Layout of a tensor, as `contracts.TensorSpec` has it."""
    return {
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
        "dtype": str(tensor.dtype).removeprefix("torch."),
    }


def _encode_tensor(tensor: Tensor, leaves: list[Tensor], path: str) -> dict[str, Any]:
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        raise UnsupportedValue(f"{_place(path)} is a {tensor.layout} tensor: only dense ones are supported")
    if len(leaves) >= MAX_LEAVES:
        raise UnsupportedValue(f"more than {MAX_LEAVES} tensors")
    leaves.append(tensor)
    return {"tensor": len(leaves) - 1}


def _encode_item(value: Mapping[Any, Any], key: Any, leaves: list[Tensor], path: str, depth: int) -> dict[str, Any]:
    return encode(value[key], leaves, f"{path}[{key!r}]", depth + 1)


def _key(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise UnsupportedValue(f"{_place(path)} is a dict with the key {key!r}: use strings as keys")
    return key


def _place(path: str) -> str:
    return f"the value at {path}" if path else "the value"


_SCALARS: dict[str, Any] = {
    "value": lambda body: body,
    "float": float,
    "complex": lambda body: complex(*body),
    "dtype": lambda body: getattr(torch, body),
    "device": torch.device,
}
