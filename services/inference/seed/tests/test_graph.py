"""Rebuilding a graph from its message: only ATen operators, only known markers."""

from typing import Any

import pytest
import torch

from services.contracts import AtenGraph
from services.inference.seed.errors import NoSeedError
from services.inference.seed.graph import build_module, resolve_dtype


def graph_of(nodes: list[dict[str, Any]], output: Any) -> AtenGraph:
    """A graph with one input x of shape [2, 3]."""
    spec = {"shape": [2, 3], "stride": [3, 1], "dtype": "float32"}
    placeholder = {"name": "x", "kind": "input", "source": "0", "spec": spec}
    return AtenGraph.model_validate(
        {"inputs": [placeholder], "nodes": nodes, "output": output, "forward_parameters": ["x"]}
    )


def test_it_computes_what_the_message_says() -> None:
    nodes: list[dict[str, Any]] = [
        {"name": "add", "target": "aten.add.Tensor", "args": [{"node": "x"}, 1], "kwargs": {"alpha": 2}},
        {"name": "top", "target": "aten.topk.default", "args": [{"node": "add"}, 2]},
    ]
    output = {"tuple": [{"item": ["top", 0]}, {"dict": {"sum": {"node": "add"}, "n": {"value": 3}}}]}
    x = torch.arange(6.0).view(2, 3)
    values, added = build_module(graph_of(nodes, output))(x)
    torch.testing.assert_close(added, x + 2)
    torch.testing.assert_close(values, (x + 2).topk(2).values)


@pytest.mark.parametrize(
    "target",
    [
        "os.system.x",
        "aten.add",
        "aten.__class__.__name__",
        "aten.add.Tensor.__call__",
        "warpsmith.attention.default",
        "aten.no_such_operator.default",
        "torch.add.Tensor",
    ],
)
def test_a_target_outside_aten_is_refused(target: str) -> None:
    with pytest.raises(NoSeedError):
        build_module(graph_of([{"name": "y", "target": target, "args": [{"node": "x"}]}], {"node": "y"}))


@pytest.mark.parametrize("marker", [{"eval": "1"}, {"node": "missing"}, {"dtype": "nn"}, {"memory_format": "load"}])
def test_an_unknown_marker_is_refused(marker: dict[str, Any]) -> None:
    nodes = [{"name": "y", "target": "aten.add.Tensor", "args": [{"node": "x"}, marker]}]
    with pytest.raises(NoSeedError):
        build_module(graph_of(nodes, {"node": "y"}))


def test_only_dtypes_are_dtypes() -> None:
    assert resolve_dtype("bfloat16") is torch.bfloat16
    with pytest.raises(NoSeedError):
        resolve_dtype("Tensor")
