"""The user's module: imported from a real file, built, and its state named."""

import copy
import importlib.util
import inspect
import linecache
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import trees
from .faults import SourceError
from .memory import span_elements


def seed_everything(seed: int) -> None:
    """Torch's, NumPy's and Python's generators."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def import_source(source: str, path: Path) -> ModuleType:
    """Write the source to `path` and import it under the file's name, so that tracebacks and Triton find its lines."""
    path.write_text(source, encoding="utf-8")
    linecache.checkcache(str(path))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SourceError(f"{path.name} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def definition(module: ModuleType, name: str, kind: str) -> Callable[..., Any]:
    """A class or function of the source. SourceError that says which is missing."""
    found = getattr(module, name, None)
    if found is None:
        raise SourceError(f"the source defines no {kind} {name}")
    if kind == "class" and not (isinstance(found, type) and issubclass(found, torch.nn.Module)):
        raise SourceError(f"{name} must be a class that derives from torch.nn.Module")
    if not callable(found):
        raise SourceError(f"{name} must be a {kind}")
    return found  # type: ignore[no-any-return]


def arguments(value: Any, name: str) -> list[Any] | tuple[Any, ...] | dict[str, Any]:
    """What get_inputs() or get_init_inputs() gave, as arguments for a call: a list, or a dict of keywords."""
    if isinstance(value, list | tuple | dict):
        return value
    if isinstance(value, Tensor):
        return [value]
    raise SourceError(f"{name}() must return a list of arguments, not {type(value).__name__}")


def call(function: Callable[..., Any], values: Any) -> Any:
    """Call with a list of arguments, or a dict of keywords."""
    return function(**values) if isinstance(values, dict) else function(*values)


def state(model: torch.nn.Module) -> dict[str, tuple[str, Tensor]]:
    """(kind, tensor) by dotted name: parameters, buffers, then plain tensor attributes."""
    found: dict[str, tuple[str, Tensor]] = {}
    found |= {name: ("parameter", tensor) for name, tensor in model.named_parameters(remove_duplicate=False)}
    found |= {name: ("buffer", tensor) for name, tensor in model.named_buffers(remove_duplicate=False)}
    found |= {name: ("attribute", tensor) for name, tensor in _attributes(model)}
    return {name: (kind, tensor) for name, (kind, tensor) in found.items() if isinstance(tensor, Tensor)}


def describe_state(model: torch.nn.Module) -> list[dict[str, Any]]:
    """As `replies.StateEntry` has it."""
    first: dict[tuple[Any, ...], str] = {}
    entries = []
    for name, (kind, tensor) in state(model).items():
        trees.encode(tensor, [], f".{name}")
        memory = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype) if tensor.numel() else (name,)
        owner = first.setdefault(memory, name)
        tied_to = "" if owner == name else owner
        entries.append({"name": name, "kind": kind, "spec": trees.spec(tensor), "tied_to": tied_to})
    return entries


def forward_parameters(model: torch.nn.Module) -> list[str]:
    """Names of forward's parameters, without self."""
    return list(inspect.signature(model.forward).parameters)


def widened(model: torch.nn.Module) -> torch.nn.Module:
    """A copy in float64: parameters, buffers and plain tensor attributes."""
    with torch.no_grad():
        wide = copy.deepcopy(model).double()
        for module in wide.modules():
            for name, value in vars(module).items():
                if isinstance(value, Tensor):
                    setattr(module, name, widen(value))
    return wide


def widen(tensor: Tensor) -> Tensor:
    """In float64 or complex128 where it is a float or complex; layout kept."""
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def copy_layout(target: Tensor, source: Tensor) -> None:
    """Copy values; where both have the same strides the whole span is copied, so that overlapping layouts can be."""
    with torch.no_grad():
        source = source.detach().resolve_conj().resolve_neg()
        if target.shape == source.shape and target.stride() == source.stride() and target.dtype == source.dtype:
            target, source = _span(target), _span(source)
        target.copy_(source)


def clone_layout(tensor: Tensor) -> Tensor:
    """A copy with the same strides, stride 0 included."""
    cloned = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    copy_layout(cloned, tensor)
    return cloned


def _span(tensor: Tensor) -> Tensor:
    count = span_elements(tensor.shape, tensor.stride())
    return tensor.detach().as_strided((count,), (1,), tensor.storage_offset())


def _attributes(model: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            dotted = f"{prefix}.{name}" if prefix else name
            if isinstance(value, Tensor):
                yield dotted, value
            elif isinstance(value, list | tuple) and not name.startswith("_"):
                yield from ((f"{dotted}[{i}]", item) for i, item in enumerate(value) if isinstance(item, Tensor))
