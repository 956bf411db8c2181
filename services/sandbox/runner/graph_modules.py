"""Describes an op's module for the graph export: stock modules, signatures, shared tensors."""

import ast
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

Json = Any


def module_spec(path: str, module: nn.Module) -> dict[str, str] | None:
    """The constructor call of a stock torch.nn leaf with state, proven by making it again; None for others."""
    cls = type(module)
    stock = cls.__module__.startswith("torch.nn.modules.") and getattr(nn, cls.__name__, None) is cls
    own = dict(module.named_parameters()) | dict(module.named_buffers())
    if not path or not stock or not own or any(True for _ in module.children()):
        return None
    arguments = _constructor_arguments(module)
    if arguments is None:
        return None
    positional, named = arguments
    try:
        with torch.device("meta"):
            again = cls(*positional, **named)
    except Exception:  # noqa: BLE001  any failure means the same: this module is not rebuilt but listed as plain state
        return None
    if _state_form(again) != _state_form(module):
        return None
    words = [repr(value) for value in positional] + [f"{key}={value!r}" for key, value in named.items()]
    return {"path": path, "class_name": cls.__name__, "arguments": ", ".join(words)}


def _constructor_arguments(module: nn.Module) -> tuple[list[Any], dict[str, Any]] | None:
    """Required arguments, and the others where they differ from their defaults, read from the module's attributes."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for name, parameter in list(inspect.signature(type(module)).parameters.items()):
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            return None
        if name == "device":
            continue
        if name == "dtype":
            floating = [tensor.dtype for tensor in module.parameters()]
            value: Any = floating[0] if floating and floating[0] != torch.float32 else None
        elif not hasattr(module, name):
            continue
        else:
            value = _plain_argument(name, getattr(module, name))
        if not _is_literal(value):
            return None
        if parameter.default is parameter.empty:
            positional.append(value)
        elif value != parameter.default:
            named[name] = value
    return positional, named


def _plain_argument(name: str, value: Any) -> Any:
    """An attribute as one writes it in a constructor call: kernel_size=3 for (3, 3)."""
    if name == "bias":
        return value is not None
    one_size = isinstance(value, tuple) and len(set(value)) == 1 and isinstance(value[0], int)
    if one_size and (name != "normalized_shape" or len(value) == 1):
        return value[0]
    return value


def _state_form(module: nn.Module) -> dict[str, tuple[torch.Size, torch.dtype]]:
    state = dict(module.named_parameters()) | dict(module.named_buffers())
    return {name: (tensor.shape, tensor.dtype) for name, tensor in state.items()}


def _is_literal(value: Any) -> bool:
    if isinstance(value, torch.dtype):
        return True
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError):
        return False


def init_parameters(cls: type[nn.Module]) -> str:
    if cls.__init__ is nn.Module.__init__:
        return ""
    parts: list[str] = []
    keyword_only = False
    for parameter in list(inspect.signature(cls.__init__).parameters.values())[1:]:
        star = "*" * (parameter.kind is parameter.VAR_POSITIONAL) or "**" * (parameter.kind is parameter.VAR_KEYWORD)
        keyword_only |= star == "*"
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            parts.append("*")
            keyword_only = True
        default = parameter.default
        suffix = "" if default is parameter.empty else f"={default!r}" if _is_literal(default) else "=None"
        parts.append(f"{star}{parameter.name}{suffix}")
    return ", ".join(parts)


def describe_init_values(cls: type[nn.Module], values: Sequence[Any]) -> dict[str, Json]:
    """What the constructor's named parameters were given, defaults included, as far as JSON carries it."""
    if cls.__init__ is nn.Module.__init__:
        return {}
    signature = inspect.signature(cls.__init__)
    try:
        bound = signature.bind(None, *values)
    except TypeError:
        return {}
    bound.apply_defaults()
    named = list(bound.arguments.items())[1:]
    plain = (bool, int, float, str)
    return {key: value for key, value in named if isinstance(value, plain) and _is_literal(value)}


def forward_parameters(model: nn.Module, count: int) -> list[str]:
    names: list[str] = []
    for parameter in inspect.signature(model.forward).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}_{i}" for i in range(count - len(names))]
        elif parameter.kind is not parameter.VAR_KEYWORD:
            names.append(parameter.name)
    return names[:count]


def tied_names(model: nn.Module) -> dict[str, str]:
    """Second names of shared parameters and buffers -> the first one."""
    first: dict[int, str] = {}
    ties: dict[str, str] = {}
    listings: list[Callable[..., Iterator[tuple[str, torch.Tensor]]]] = [model.named_parameters, model.named_buffers]
    for listing in listings:
        for name, tensor in listing(remove_duplicate=False):
            if first.setdefault(id(tensor), name) != name:
                ties[name] = first[id(tensor)]
    return ties
