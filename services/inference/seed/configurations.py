"""The autotune configurations that Inductor's heuristics offer for one kernel."""

import ast
import math
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from services.inference.seed.errors import NoSeedError
from services.inference.seed.program import WrittenKernel

MAX_CONFIGURATIONS = 4
_HEURISTICS = ("pointwise", "reduction", "persistent_reduction")


@dataclass(frozen=True)
class Configuration:
    """One triton.Config."""

    blocks: tuple[tuple[str, int], ...]
    num_warps: int
    num_stages: int

    @property
    def block_elements(self) -> int:
        """Elements of one program's tile."""
        return math.prod(size for _, size in self.blocks)


def configurations(kernel: WrittenKernel) -> list[Configuration]:
    """Inductor's default choice first, then those of its exhaustive search, among them the largest tile."""
    offered = _offered(kernel, exhaustive=False) + _offered(kernel, exhaustive=True)
    distinct = list(dict.fromkeys(offered))
    chosen = distinct[:MAX_CONFIGURATIONS]
    largest = max(distinct, key=lambda choice: choice.block_elements)
    if largest not in chosen:
        chosen[-1] = largest
    return chosen


def _offered(kernel: WrittenKernel, *, exhaustive: bool) -> list[Configuration]:
    from torch._inductor.runtime import triton_heuristics

    if kernel.heuristic not in _HEURISTICS:
        raise NoSeedError(f"Inductor's heuristic {kernel.heuristic!r} has no plain form")
    arguments = {keyword.arg: _evaluate(keyword.value) for keyword in kernel.options.keywords if keyword.arg}
    arguments["inductor_meta"] |= {"max_autotune_pointwise": exhaustive, "max_autotune": exhaustive}
    taken: list[Any] = []

    def take(size_hints: Any, configs: list[Any], **_: Any) -> None:
        taken.extend(configs)

    with patch.object(triton_heuristics, "cached_autotune", take):
        getattr(triton_heuristics, kernel.heuristic)(**arguments)
    return [_plain(config) for config in taken]


def _plain(config: Any) -> Configuration:
    return Configuration(tuple(sorted(config.kwargs.items(), reverse=True)), config.num_warps, config.num_stages)


def _evaluate(node: ast.expr) -> Any:
    """A heuristic's argument: literals, and the few types that Inductor writes there."""
    from torch._inductor.runtime.hints import AutotuneHint, DeviceProperties, ReductionHint, TileHint

    types: dict[str, Any] = {"AutotuneHint": AutotuneHint, "ReductionHint": ReductionHint, "TileHint": TileHint}
    match node:
        case ast.Name(id="__file__"):
            return "kernel.py"
        case ast.Attribute(value=ast.Name(id=owner), attr=member) if owner in types:
            return types[owner][member]
        case ast.Call(func=ast.Name(id="DeviceProperties"), keywords=keywords):
            return DeviceProperties(**{str(keyword.arg): _evaluate(keyword.value) for keyword in keywords})
        case ast.Call(func=ast.Name(id="set"), args=[]):
            return set()
        case ast.Dict(keys=keys, values=values):
            return {_evaluate(key): _evaluate(value) for key, value in zip(keys, values, strict=True) if key}
        case ast.List(elts=items) | ast.Set(elts=items):
            return [_evaluate(item) for item in items]
        case _:
            return ast.literal_eval(node)
