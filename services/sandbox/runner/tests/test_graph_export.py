"""The exported graph is a valid message, is traced as for a GPU, and refuses in one sentence what it cannot hold."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from services.contracts import AtenGraph
from services.sandbox.runner.graph_export import export_graph


def exported(model: nn.Module, *inputs: Any, init_values: tuple[Any, ...] = ()) -> AtenGraph:
    """The graph after a journey as JSON."""
    graph = AtenGraph.model_validate(export_graph(model, inputs, init_values))
    return AtenGraph.model_validate_json(graph.model_dump_json())


def targets(graph: AtenGraph) -> list[str]:
    return [node.target for node in graph.nodes]


class Scaled(nn.Module):
    def __init__(self, features: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.linear = nn.Linear(features, 4)
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x: torch.Tensor, factor: float, more: dict[str, Any]) -> dict[str, Any]:
        y = self.linear(x) * self.scale * factor
        return {"y": (y, more["a"][0].t()), "n": 3}


class TestWholeMessage:
    graph = exported(Scaled(8), torch.randn(2, 8), math.inf, {"a": [torch.randn(3, 5).t(), None]}, init_values=(8,))

    def test_inputs_and_state_keep_name_shape_and_stride(self) -> None:
        found = {item.source: (item.kind.value, item.spec.shape, item.spec.stride) for item in self.graph.inputs}
        assert found == {
            "linear.weight": ("parameter", [4, 8], [8, 1]),
            "linear.bias": ("parameter", [4], [1]),
            "scale": ("buffer", [4], [1]),
            "0": ("input", [2, 8], [8, 1]),
            "2['a'][0]": ("input", [5, 3], [1, 5]),
        }

    def test_other_inputs_are_scalars_by_their_place(self) -> None:
        assert self.graph.scalars == {"1": {"float": "inf"}, "2['a'][1]": None}

    def test_the_output_keeps_its_structure(self) -> None:
        assert isinstance(self.graph.output, dict)
        assert list(self.graph.output["dict"]) == ["y", "n"]  # type: ignore[arg-type]
        assert self.graph.output["dict"]["n"] == {"value": 3}  # type: ignore[index,call-overload]

    def test_stock_modules_are_listed_as_one_writes_them(self) -> None:
        assert [(item.path, item.class_name, item.arguments) for item in self.graph.modules] == [
            ("linear", "Linear", "8, 4")
        ]

    def test_signatures_and_values_are_kept(self) -> None:
        assert self.graph.init_parameters == "features, eps=1e-06"
        assert self.graph.init_values == {"features": 8, "eps": 1e-6}
        assert self.graph.forward_parameters == ["x", "factor", "more"]


class Attention(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def test_attention_stays_one_call() -> None:
    q = torch.randn(2, 4, 8, 16)
    assert targets(exported(Attention(), q, q, q)) == ["aten.scaled_dot_product_attention.default"]


def test_attention_inside_a_stock_module_stays_one_call() -> None:
    graph = exported(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), torch.randn(2, 5, 32))
    assert targets(graph).count("aten.scaled_dot_product_attention.default") == 1


def test_operators_of_the_gpu_alone_are_said_in_common_ones() -> None:
    assert not [name for name in targets(exported(nn.LSTMCell(4, 8), torch.randn(2, 4))) if "thnn" in name]


class Constants(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.window = torch.tensor([1.0, 2.0, math.inf])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.window + torch.tensor([1, 2, 3])


def test_small_tensors_of_the_source_become_constants() -> None:
    graph = exported(Constants(), torch.randn(2, 3))
    values = [constant["values"] for constant in graph.constants.values()]  # type: ignore[index,call-overload]
    assert values == [[1.0, 2.0, {"float": "inf"}], [1, 2, 3]]
    assert "window" in graph.constants


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.embedding(tokens))
        return logits


def test_a_shared_parameter_is_one_input_with_two_names() -> None:
    graph = exported(Tied(), torch.tensor([1, 2]))
    assert graph.ties == {"head.weight": "embedding.weight"}
    assert [item.source for item in graph.inputs] == ["embedding.weight", "0"]


class Branching(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x
        return -x


class Selecting(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[x > 0]


class Drawing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x)


class Large(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.randn(100, 100)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.table


class Endless(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3000):
            x = x + 1
        return x


class Listing(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return {1: x}


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (Branching(), r"decision or a shape from a tensor's values \(line \d+\)"),
        (Selecting(), r"decision or a shape from a tensor's values \(line \d+\)"),
        (Drawing(), "draws random numbers"),
        (Large(), "table has 10000 elements and is neither a parameter nor a buffer"),
        (Endless(), "more than 2000 ATen calls"),
        (Listing(), "keys that are not strings"),
    ],
)
def test_what_has_no_graph_is_said_in_one_sentence(model: nn.Module, sentence: str) -> None:
    with pytest.raises(ValueError, match=rf"^no graph: .*{sentence}") as refusal:
        export_graph(model, [torch.randn(100, 100)])
    assert "\n" not in str(refusal.value)


def test_the_model_is_left_as_it_was() -> None:
    model, x = nn.Linear(4, 4), torch.randn(2, 4)
    before = model(x)
    attention = F.scaled_dot_product_attention
    export_graph(model, [x])
    torch.testing.assert_close(model(x), before)
    assert F.scaled_dot_product_attention is attention
    assert torch.backends.mha.get_fastpath_enabled()
