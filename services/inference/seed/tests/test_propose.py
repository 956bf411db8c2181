"""The proposer as the inference service calls it."""

import ast
import re
from typing import Any

import pytest
import torch

from services.contracts import AtenGraph, OpSpec, ProposeOutcome, Proposer, ProposeRequest, ProposeResult
from services.inference.seed import compile as compiling
from services.inference.seed import propose_seed
from services.inference.seed.program import Program, read_program

SOURCE = """
import torch
import torch.nn as nn

WIDTH = 64

class Model(nn.Module):
    def __init__(self, features, eps=1e-6):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x):
        return torch.relu(x + self.bias)
"""


def spec(*shape: int) -> dict[str, Any]:
    """A dense float32 tensor."""
    stride = [torch.empty(shape, device="meta").stride(i) for i in range(len(shape))]
    return {"shape": list(shape), "stride": stride, "dtype": "float32"}


def graph(**changes: Any) -> AtenGraph:
    """relu(x + bias)."""
    message: dict[str, Any] = {
        "inputs": [
            {"name": "bias", "kind": "parameter", "source": "bias", "spec": spec(64)},
            {"name": "x", "kind": "input", "source": "0", "spec": spec(128, 64)},
        ],
        "nodes": [
            {"name": "add", "target": "aten.add.Tensor", "args": [{"node": "x"}, {"node": "bias"}]},
            {"name": "relu", "target": "aten.relu.default", "args": [{"node": "add"}]},
        ],
        "output": {"node": "relu"},
        "init_parameters": "features, eps=1e-06",
        "init_values": {"features": 64, "eps": 1e-6},
        "forward_parameters": ["x"],
    }
    return AtenGraph.model_validate(message | changes)


def proposed(graph: AtenGraph | None, *, source: str = SOURCE, target: str = "h200", **more: Any) -> ProposeResult:
    """The answer to a request for this graph."""
    op = OpSpec(op_id="op", name='bias "relu"', source=source)
    request = ProposeRequest(turn_id="t", proposer=Proposer.SEED, op=op, graph=graph, target=target, **more)
    return propose_seed(request)


def source_of(result: ProposeResult) -> str:
    """The one proposal's source."""
    assert result.outcome is ProposeOutcome.PROPOSED, result.reason
    assert result.proposals[0].source is not None
    return result.proposals[0].source


def test_it_answers_with_one_readable_file() -> None:
    result = proposed(graph())
    source = source_of(result)
    assert result.proposals[0].title == "compiler seed: 1 kernel fuses 2 ATen calls (add, relu)"
    assert "def fused_add_relu_kernel(" in source
    assert "self.bias = nn.Parameter(torch.zeros(features))" in source
    assert "self.eps" not in source
    assert "_inductor" not in source
    ast.parse(source)


def test_the_source_is_read_and_never_run() -> None:
    source_of(proposed(graph(), source=SOURCE + "\nraise SystemExit('the source was run')\n"))


def test_without_a_readable_constructor_the_state_is_made_from_the_graph() -> None:
    source = source_of(proposed(graph(), source=SOURCE.replace("torch.zeros(features)", "initial(features)")))
    assert "self.bias = nn.Parameter(torch.empty(64, dtype=torch.float32))" in source


def test_stock_modules_in_a_list_keep_their_names() -> None:
    modules = [{"path": "net.1", "class_name": "Linear", "arguments": "64, 64"}]
    inputs = [
        {"name": "bias", "kind": "parameter", "source": "net.1.bias", "spec": spec(64)},
        {"name": "x", "kind": "input", "source": "0", "spec": spec(128, 64)},
    ]
    source = source_of(proposed(graph(modules=modules, inputs=inputs), source=""))
    assert "self.net = nn.ModuleList([nn.Identity(), nn.Linear(64, 64)])" in source
    assert "self.net[1].bias" in source


def test_another_constructor_argument_is_refused_by_the_file() -> None:
    source = source_of(proposed(graph()))
    assert 'raise ValueError("specialised for features=64, eps=1e-06")' in source


def test_targets_may_alternate_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def noted(text: str) -> Program:
        asked.extend(re.findall(r"multi_processor_count=(\d+), cc=(\d+)", text)[0])
        return read_program(text)

    monkeypatch.setattr(compiling, "read_program", noted)
    sources = [source_of(proposed(graph(), target=target)) for target in ("h200", "a100", "h200")]
    assert asked == ["132", "90", "108", "80", "132", "90"]
    assert sources[0] == sources[2]


def test_it_leaves_torch_as_it_was() -> None:
    names = ["is_available", "device_count", "current_device", "get_device_properties", "device"]
    before = [getattr(torch.cuda, name) for name in names]
    version = torch.version.cuda
    source_of(proposed(graph()))
    assert [getattr(torch.cuda, name) for name in names] == before
    assert torch.version.cuda == version
    assert "__getitem__" not in vars(torch.Tensor)
    assert torch.arange(3)[1:].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"nodes": [{"name": "relu", "target": "aten.nothing.default", "args": []}]}, "no operator aten.nothing"),
        ({"output": {"node": "x"}, "nodes": []}, "no kernel"),
        ({"init_parameters": "a): import os\ndef g("}, "signature"),
        ({"forward_parameters": []}, "parameters"),
    ],
)
def test_it_says_why_there_is_no_seed(changes: dict[str, Any], reason: str) -> None:
    result = proposed(graph(**changes))
    assert result.outcome is ProposeOutcome.NOTHING
    assert result.reason.startswith("no seed: ")
    assert reason in result.reason


def test_an_op_without_a_graph_gets_the_exporters_reason() -> None:
    result = proposed(None, graph_error="no graph: forward draws random numbers (aten.rand.default)")
    assert result.outcome is ProposeOutcome.NOTHING
    assert result.reason == "no seed: forward draws random numbers (aten.rand.default)"


def test_a_defect_of_ours_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str) -> None:
        raise KeyError("xnumel")

    monkeypatch.setattr(compiling, "read_program", broken)
    with pytest.raises(KeyError, match="xnumel"):
        proposed(graph())


def test_calls_with_names_of_python_are_named_in_the_file() -> None:
    nodes = [
        {"name": "sum", "target": "aten.sum.dim_IntList", "args": [{"node": "x"}, [1]]},
        {"name": "relu", "target": "aten.relu.default", "args": [{"node": "sum"}]},
    ]
    result = proposed(graph(nodes=nodes))
    assert "Fuses aten.sum, aten.relu." in source_of(result)
    assert "(sum, relu)" in result.proposals[0].title


def test_a_product_of_the_library_leaves_its_bias_to_the_kernel() -> None:
    inputs = [
        {"name": "bias", "kind": "parameter", "source": "bias", "spec": spec(64)},
        {"name": "x", "kind": "input", "source": "0", "spec": spec(128, 64)},
        {"name": "y", "kind": "input", "source": "1", "spec": spec(64, 64)},
    ]
    product = {"name": "mm", "target": "aten.addmm.default", "args": [{"node": name} for name in ("bias", "x", "y")]}
    relu = {"name": "relu", "target": "aten.relu.default", "args": [{"node": "mm"}]}
    result = proposed(graph(inputs=inputs, nodes=[product, relu], forward_parameters=["x", "y"]))
    assert "Fuses the bias of aten.addmm, aten.relu." in source_of(result)
    assert "(bias, relu)" in result.proposals[0].title


def test_a_kernel_with_one_choice_is_launched_without_tuning() -> None:
    inputs = [{"name": "x", "kind": "input", "source": "0", "spec": spec(64)}]
    mean = {"name": "mean", "target": "aten.mean.default", "args": [{"node": "x"}]}
    state = {"init_parameters": "", "init_values": {}}
    source = source_of(proposed(graph(inputs=inputs, nodes=[mean], output={"node": "mean"}, **state), source=""))
    assert "autotune" not in source
    assert "mean_kernel[(1,)](x, out, n_cols=64, BLOCK_COLS=64, BLOCK_ROWS=1, num_warps=2, num_stages=1)" in source


def test_a_large_kernel_is_tuned_and_its_offsets_have_64_bits() -> None:
    x = {"name": "x", "kind": "input", "source": "0", "spec": spec(1 << 26, 64)}
    source = source_of(proposed(graph(inputs=[graph().inputs[0], x])))
    assert "@triton.autotune(" in source
    assert "offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE" in source
    assert "[lambda meta: (triton.cdiv(4294967296, meta" in source


def test_a_kernel_that_only_copies_says_so() -> None:
    nodes = [
        {"name": "t", "target": "aten.t.default", "args": [{"node": "x"}]},
        {
            "name": "clone",
            "target": "aten.clone.default",
            "args": [{"node": "t"}],
            "kwargs": {"memory_format": {"memory_format": "contiguous_format"}},
        },
    ]
    result = proposed(graph(nodes=nodes, output={"node": "clone"}))
    assert "Copies into another layout: aten.t, aten.clone." in source_of(result)
    assert result.proposals[0].title == "compiler seed: 1 kernel for copies into another layout"
