"""Rebuilds an op's ATen graph as an fx.GraphModule of fake CUDA tensors. Nothing of the user's source is involved."""

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from services.contracts import AtenGraph, TensorSpec
from services.inference.seed.errors import NoSeedError

_NAMESPACES = {"aten": torch.ops.aten, "prims": torch.ops.prims}
_TARGET = re.compile(r"(aten|prims)\.([A-Za-z_]\w*)\.(\w+)")
_DTYPE = re.compile(r"(float|bfloat|complex|int|uint)\d+(_e\dm\d\w*)?|bool")
_ATTENTION = "aten.scaled_dot_product_attention.default"


@torch.library.custom_op("warpsmith::attention", mutates_args=())
def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> torch.Tensor:
    """Stands for scaled_dot_product_attention, which Inductor then leaves whole, as a library call."""
    raise NotImplementedError("only its shape is ever asked for")


@attention.register_fake
def _(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> torch.Tensor:
    return query.new_empty((*query.shape[:-1], value.shape[-1]))


def resolve_dtype(name: str) -> torch.dtype:
    """torch.float32 for "float32". Raises NoSeedError for anything that is not a dtype's name."""
    dtype = getattr(torch, name, None) if _DTYPE.fullmatch(name) else None
    if not isinstance(dtype, torch.dtype):
        raise NoSeedError(f"{name!r} is not a dtype")
    return dtype


def build_module(graph: AtenGraph) -> fx.GraphModule:
    """The graph as a module: placeholders are the graph's inputs in order, then its constants; outputs are flat."""
    built = fx.Graph()
    nodes: dict[str, fx.Node] = {}
    for item in [*graph.inputs]:
        nodes[item.name] = built.placeholder(item.name)
    for name in graph.constants:
        nodes[name] = built.placeholder(name)
    for node in graph.nodes:
        args = [_decode(value, nodes) for value in node.args]
        kwargs = {key: _decode(value, nodes) for key, value in node.kwargs.items()}
        operator, operands, options = _call(node.target, args, kwargs)
        # Inductor lists these names above each kernel: they say which calls it fuses
        name = call_name(node.name)
        call = built.create_node("call_function", operator, operands, options, name=name)
        call.meta["source_fn_stack"] = [(name, operator)]
        nodes[node.name] = call
    built.output(tuple(_decode(leaf, nodes) for leaf in tensor_leaves(graph.output)))
    return fx.GraphModule(torch.nn.Module(), built)


def call_name(name: str) -> str:
    """A call's name in the module: one that fx keeps, which changes Python's own names, such as "sum"."""
    return f"call_{name}"


def _call(
    target: str, args: list[Any], kwargs: dict[str, Any]
) -> tuple[torch._ops.OpOverload, tuple[Any, ...], dict[str, Any]]:
    if target == _ATTENTION:
        query, key, value, mask, _, is_causal = args
        gqa = bool(kwargs.get("enable_gqa", False))
        operands = (query, key, value, mask, is_causal, kwargs.get("scale"), gqa)
        return torch.ops.warpsmith.attention.default, operands, {}
    return _resolve(target), tuple(args), kwargs


def _resolve(target: str) -> torch._ops.OpOverload:
    match = _TARGET.fullmatch(target)
    if match is None:
        raise NoSeedError(f"{target} is not an ATen operator")
    namespace, name, overload = match.groups()
    packet = getattr(_NAMESPACES[namespace], name, None)
    operator = getattr(packet, overload, None)
    if not isinstance(operator, torch._ops.OpOverload):
        raise NoSeedError(f"this torch ({torch.__version__}) has no operator {target}")
    return operator


def tensor_leaves(output: Any) -> list[Any]:
    """The references of an output structure, in order."""
    ((tag, body),) = output.items()
    if tag in {"list", "tuple"}:
        return [leaf for item in body for leaf in tensor_leaves(item)]
    if tag == "dict":
        return [leaf for item in body.values() for leaf in tensor_leaves(item)]
    return [] if tag == "value" else [output]


def _decode(value: Any, nodes: dict[str, fx.Node]) -> Any:
    if isinstance(value, list):
        return [_decode(item, nodes) for item in value]
    if not isinstance(value, dict):
        return value
    ((tag, body),) = value.items()
    if tag in {"node", "constant"}:
        return _node(nodes, body)
    if tag == "item":
        name, index = body
        parent = _node(nodes, name)
        return parent.graph.call_function(_getitem, (parent, index))
    if tag == "dtype":
        return resolve_dtype(body)
    if tag == "device":
        return torch.device("cuda", 0)
    if tag == "layout" and body == "strided":
        return torch.strided
    if tag == "memory_format" and body in {"contiguous_format", "channels_last", "channels_last_3d", "preserve_format"}:
        return getattr(torch, body)
    if tag == "float":
        return float(body)
    raise NoSeedError(f"the graph holds an unknown marker {tag!r}")


def _node(nodes: dict[str, fx.Node], name: str) -> fx.Node:
    try:
        return nodes[name]
    except KeyError:
        raise NoSeedError(f"the graph uses {name!r} before it is defined") from None


def _getitem(values: Sequence[Any], index: int) -> Any:
    return values[index]


def fake_inputs(graph: AtenGraph) -> list[torch.Tensor]:
    """Empty CUDA tensors of the placeholders' shapes and strides; call it under a FakeTensorMode."""
    specs = [item.spec for item in graph.inputs] + [constant_spec(value) for value in graph.constants.values()]
    return [
        torch.empty_strided(spec.shape, spec.stride, dtype=resolve_dtype(spec.dtype), device="cuda") for spec in specs
    ]


def constant_spec(constant: Any) -> TensorSpec:
    """Shape and dtype of one of the graph's constants."""
    return TensorSpec.model_validate(constant["spec"])
