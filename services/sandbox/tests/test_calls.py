"""What a runner answers to each call, and how user code's errors come back."""

import textwrap

import pytest
import torch

from services.contracts import TensorSpec, Verdict
from services.sandbox.fence import Buffer
from services.sandbox.replies import StateKind
from services.sandbox.runners import Precision, Role, Runner, RunnerFault, RunnerKind, Runners, Tree
from services.sandbox.tests.subjects import OP, candidate, exported, run


def reference(runners: Runners) -> Runner:
    return runners.spawn(RunnerKind.INTERPRET, Role.REFERENCE)


def load(runners: Runners, source: str, class_name: str = "Model") -> RunnerFault:
    with reference(runners) as runner, pytest.raises(RunnerFault) as caught:
        runner.load(textwrap.dedent(source), class_name)
    return caught.value


def op(body: str, *, init: str = "", inputs: str = "[torch.ones(4)]", init_inputs: str = "[]") -> str:
    """An op with these pieces; forward takes any arguments as `xs`, the first as `x`."""
    return (
        "import torch\nimport torch.nn as nn\nclass Model(nn.Module):\n    def __init__(self, *a, **k):\n"
        "        super().__init__()\n" + textwrap.indent(textwrap.dedent(init), " " * 8) + "\n"
        "    def forward(self, *xs, **named):\n        x = xs[0] if xs else None\n"
        + textwrap.indent(textwrap.dedent(body), " " * 8)
        + f"\ndef get_inputs():\n    return {inputs}\ndef get_init_inputs():\n    return {init_inputs}\n"
    )


def values(runners: Runners, runner: Runner, tree: Tree) -> list[torch.Tensor]:
    return [buffer.tensor for buffer in exported(runners, runner, tree)]


def test_forward_matches_torch_and_the_seed_decides_the_inputs(runners: Runners) -> None:
    with reference(runners) as runner:
        loaded = runner.load(OP, "Model", seed=5)
        assert [entry.name for entry in loaded.state] == ["weight"]
        assert loaded.forward_parameters == ["x"]
        weight = runners.fence.allocate(loaded.state[0].spec)
        runner.read_state({"weight": weight})
        torch.manual_seed(5)
        assert torch.equal(weight.tensor, torch.randn(8))
        inputs = runner.make_inputs(7)
        (x,) = exported(runners, runner, inputs)
        torch.manual_seed(7)
        assert torch.equal(x.tensor, torch.randn(4, 8))
        weight.tensor.fill_(3)
        runner.write_state({"weight": weight})
        forward = runner.forward(inputs, [x])
        out = runners.fence.allocate(forward.outputs.leaves[0].spec)
        runner.collect([out])
        assert torch.equal(out.tensor, x.tensor * 3)


def test_values_change_behind_the_modules_back_at_the_same_address(runners: Runners) -> None:
    body = "self.seen = getattr(self, 'seen', []) + [x.data_ptr()]\nreturn x + 0, len(set(self.seen))"
    with candidate(runners, body) as runner:
        inputs = runner.make_inputs(1)
        (x,) = exported(runners, runner, inputs)
        for value in (2.0, 5.0):
            x.tensor.fill_(value)
            forward = runner.forward(inputs, [x])
            out = runners.fence.allocate(forward.outputs.leaves[0].spec)
            runner.collect([out])
            assert out.tensor.tolist() == [value] * 4
            assert forward.outputs.structure == {"tuple": [{"tensor": 0}, {"value": 1}]}


def test_a_mutation_of_an_input_shows_in_its_checksum(runners: Runners) -> None:
    with candidate(runners, "x[1] = 9\nreturn x") as runner:
        inputs = runner.make_inputs(1)
        (x,) = exported(runners, runner, inputs)
        before = x.checksum()
        runner.forward(inputs, [x])
        assert x.checksum() != before
        assert x.canaries_intact()


def test_nested_values_and_scalars_cross_both_ways(runners: Runners) -> None:
    source = op(
        "return {'y': x + 1, 'rest': [xs[1]['a'] * 2, (xs[2], xs[3], float('nan'), None, torch.float16)]}",
        inputs="[torch.ones(2), {'a': torch.zeros(3)}, 7, float('inf')]",
    )
    with reference(runners) as runner:
        runner.load(source, "Model")
        forward, outputs = run(runners, runner)
        assert forward.outputs.paths() == ["['y']", "['rest'][0]"]
        assert [output.tensor.tolist() for output in outputs] == [[2, 2], [0, 0, 0]]
        scalars = [{"value": 7}, {"float": "inf"}, {"float": "nan"}, {"value": None}, {"dtype": "float16"}]
        assert forward.outputs.structure == {
            "dict": {"y": {"tensor": 0}, "rest": {"list": [{"tensor": 1}, {"tuple": scalars}]}}
        }


@pytest.mark.parametrize(
    "inputs",
    [
        "[torch.randn(5).expand(3, 5)]",
        "[torch.randn(4, 6).t()]",
        "[torch.randn(9).unfold(0, 3, 1)]",
        "[torch.ones(0, 3)]",
    ],
)
def test_strides_of_inputs_are_kept(runners: Runners, inputs: str) -> None:
    with reference(runners) as runner:
        runner.load(op("return x.stride(), x * 1", inputs=inputs), "Model")
        tree = runner.make_inputs(3)
        torch.manual_seed(3)
        (expected,) = eval(inputs)  # noqa: S307 (the test's own text)
        (x,) = exported(runners, runner, tree)
        assert torch.equal(x.tensor, expected)
        forward = runner.forward(tree, [x])
        strides = [{"value": step} for step in expected.stride()]
        assert forward.outputs.structure == {"tuple": [{"tuple": strides}, {"tensor": 0}]}


@pytest.mark.parametrize("dtype", ["complex64", "bool", "int64", "bfloat16", "float8_e4m3fn"])
def test_dtypes_are_kept(runners: Runners, dtype: str) -> None:
    with reference(runners) as runner:
        runner.load(op("return x", inputs=f"[torch.ones(3).to(torch.{dtype})]"), "Model")
        forward, outputs = run(runners, runner)
        assert forward.outputs.leaves[0].spec.dtype == dtype
        assert torch.equal(outputs[0].tensor, torch.ones(3).to(outputs[0].tensor.dtype))


def test_state_lists_kinds_and_ties(runners: Runners) -> None:
    init = """
        self.a = nn.Linear(2, 2)
        self.b = nn.Linear(2, 2)
        self.b.weight = self.a.weight
        self.norm = nn.utils.parametrizations.weight_norm(nn.Linear(2, 3))
        self.register_buffer('table', torch.zeros(2), persistent=False)
        self.h0 = torch.ones(4)
        self.many = [torch.ones(1)]
    """
    with reference(runners) as runner:
        loaded = runner.load(op("return x", init=init), "Model")
        found = {entry.name: (entry.kind, entry.tied_to) for entry in loaded.state}
        assert found["b.weight"] == (StateKind.PARAMETER, "a.weight")
        assert found["table"] == (StateKind.BUFFER, "")
        assert found["h0"] == found["many[0]"] == (StateKind.ATTRIBUTE, "")
        assert "norm.parametrizations.weight.original0" in found


def test_a_candidate_is_built_from_the_references_arguments(runners: Runners) -> None:
    init = "self.scale = a[0]['t'][0] * a[1]"
    source = op("return self.scale * x", init=init, init_inputs="[{'t': (torch.ones(1).expand(2),)}, 3]")
    with reference(runners) as first:
        arguments = first.load(source, "Model").init
        buffers = [runners.fence.allocate(leaf.spec) for leaf in arguments.leaves]
        first.export_init(buffers)
        buffers[0].tensor.fill_(2)
        with runners.spawn(RunnerKind.INTERPRET, Role.CANDIDATE) as second:
            loaded = second.load(source, "Model", arguments, buffers)
            assert loaded.state[0].name == "scale"
            scale = runners.fence.allocate(loaded.state[0].spec)
            second.read_state({"scale": scale})
            assert scale.tensor.tolist() == [6, 6]


def test_float64_widens_state_inputs_and_plain_tensors_for_one_call(runners: Runners) -> None:
    init = "self.lin = nn.Linear(4, 4)\nself.plain = torch.ones(4)"
    with reference(runners) as runner:
        runner.load(op("return self.lin(x) + self.plain", init=init), "Model")
        inputs = runner.make_inputs(1)
        buffers = exported(runners, runner, inputs)
        wide = runner.forward(inputs, buffers, precision=Precision.FLOAT64)
        assert wide.outputs.leaves[0].spec.dtype == "float64"
        assert runner.forward(inputs, buffers).outputs.leaves[0].spec.dtype == "float32"


def test_train_mode_lasts_one_call(runners: Runners) -> None:
    with candidate(runners, "return self.training") as runner:
        inputs = runner.make_inputs(1)
        buffers = exported(runners, runner, inputs)
        assert runner.forward(inputs, buffers, train=True).outputs.structure == {"value": True}
        assert runner.forward(inputs, buffers).outputs.structure == {"value": False}


def test_the_seed_of_a_call_decides_its_random_numbers(runners: Runners) -> None:
    with candidate(runners, "return torch.rand(()).item()") as runner:
        inputs = runner.make_inputs(1)
        buffers = exported(runners, runner, inputs)
        drawn = [runner.forward(inputs, buffers, seed=seed).outputs.structure for seed in (1, 1, 2)]
        assert drawn[0] == drawn[1] != drawn[2]


def test_unwritten_memory_shows_the_fill(runners: Runners) -> None:
    body = "y = torch.empty_like(x)\nz = x.new_empty(2, dtype=torch.int32)\ny[:2] = 1\nreturn y, z"
    with candidate(runners, body) as runner:
        inputs = runner.make_inputs(1)
        buffers = exported(runners, runner, inputs)
        forward = runner.forward(inputs, buffers, fill_uninitialized=float("nan"))
        outputs = [runners.fence.allocate(leaf.spec) for leaf in forward.outputs.leaves]
        runner.collect(outputs)
        assert outputs[0].tensor.isnan().tolist() == [False, False, True, True]
        assert outputs[1].tensor.tolist() == [0x5A, 0x5A]


def test_gradients_flow_only_where_an_input_requires_them(runners: Runners) -> None:
    source = op("return torch.autograd.grad((x * x).sum(), x)[0]", inputs="[torch.full((3,), 2.0, requires_grad=True)]")
    with reference(runners) as runner:
        runner.load(source, "Model")
        assert run(runners, runner)[1][0].tensor.tolist() == [4, 4, 4]
    with candidate(runners, "return (x * 2).requires_grad") as runner:
        assert run(runners, runner)[0].outputs.structure == {"value": False}


def test_two_hundred_buffers_cross(runners: Runners) -> None:
    init = "self.ps = nn.ParameterList(nn.Parameter(torch.ones(2)) for _ in range(200))"
    with reference(runners) as runner:
        loaded = runner.load(op("return sum(p.sum() for p in self.ps)", init=init), "Model")
        buffers: dict[str, Buffer] = {entry.name: runners.fence.allocate(entry.spec) for entry in loaded.state}
        for i, buffer in enumerate(buffers.values()):
            buffer.tensor.fill_(i)
        runner.write_state(buffers)
        assert float(run(runners, runner)[1][0].tensor) == 2 * sum(range(200))


def test_dropped_buffers_are_unmapped_in_the_runner(runners: Runners) -> None:
    body = "return sum('memfd:fence' in line for line in open('/proc/self/maps'))"
    with candidate(runners, body) as runner:
        inputs = runner.make_inputs(1)
        for _ in range(10):
            forward = runner.forward(inputs, exported(runners, runner, inputs))
        assert forward.outputs.structure in ({"value": 1}, {"value": 2})


@pytest.mark.parametrize(
    ("source", "kind", "words", "line"),
    [
        ("import torch\ndef broken(:\n", "SyntaxError", "invalid syntax", 2),
        ("x = 1\0", "SyntaxError", "null bytes", None),
        ("import nothing_of_that_name\n", "ModuleNotFoundError", "nothing_of_that_name", 1),
        ("import torch\n", "SourceError", "defines no class Model", None),
        ("class Model: pass\n", "SourceError", "derives from torch.nn.Module", None),
        ("import torch\nclass Model(torch.nn.Module): pass\n", "SourceError", "defines no function get_inputs", None),
        (op("return x", init="1 / 0"), "ZeroDivisionError", "division by zero", 6),
        (op("return x", init_inputs="7"), "SourceError", "must return a list", None),
        (op("return x", init_inputs="[object()]"), "UnsupportedValue", "get_init_inputs(): the value at [0]", None),
        ("import sys\nsys.exit(3)\n", "SystemExit", "ended the process", 2),
        ("\ud800", "UnicodeEncodeError", "surrogates", None),
    ],
)
def test_load_errors_say_what_and_where(runners: Runners, source: str, kind: str, words: str, line: int | None) -> None:
    fault = load(runners, source)
    assert fault.verdict is Verdict.LOAD_ERROR
    assert (fault.report.kind, fault.report.line) == (kind, line)
    assert words in fault.report.message


def test_an_exception_in_forward_lists_the_users_frames_and_the_runner_goes_on(runners: Runners) -> None:
    body = "def inner(v):\n    return v.reshape(3)\nreturn inner(x) if x[0] == 1 else x"
    with candidate(runners, body) as runner:
        inputs = runner.make_inputs(1)
        (x,) = exported(runners, runner, inputs)
        with pytest.raises(RunnerFault) as caught:
            runner.forward(inputs, [x])
        report = caught.value.report
        assert caught.value.verdict is Verdict.RUNTIME_ERROR
        assert [frame.function for frame in report.frames] == ["forward", "inner"]
        assert report.frames[-1].code == "return v.reshape(3)"
        assert report.line == report.frames[-1].line
        x.tensor.fill_(2)
        assert runner.forward(inputs, [x]).outputs.structure == {"tensor": 0}


def test_the_users_own_reraise_is_the_error(runners: Runners) -> None:
    body = "try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise ValueError('mine')"
    with candidate(runners, body) as runner, pytest.raises(RunnerFault, match="ValueError: mine"):
        run(runners, runner)


def test_an_exception_without_readable_text_is_still_reported(runners: Runners) -> None:
    body = "class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd"
    with candidate(runners, body) as runner, pytest.raises(RunnerFault, match="Odd: the exception cannot be read"):
        run(runners, runner)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return object()", "the result of forward(): the value is a builtins.object"),
        ("return {1: x}", "use strings as keys"),
        ("return x.to_sparse()", "only dense"),
        ("y = []\nfor _ in range(99): y = [y]\nreturn y", "nested deeper"),
    ],
)
def test_values_that_cannot_cross_are_named(runners: Runners, body: str, words: str) -> None:
    with candidate(runners, body) as runner, pytest.raises(RunnerFault) as caught:
        run(runners, runner)
    assert words in caught.value.report.message


def test_the_graph_of_an_op_is_traced_or_refused_in_one_sentence(runners: Runners) -> None:
    with reference(runners) as runner:
        runner.load(OP, "Model")
        inputs = runner.make_inputs(1)
        graph = runner.trace(inputs, exported(runners, runner, inputs))
        assert [node.target for node in graph.nodes] == ["aten.mul.Tensor"]
        assert {entry.source for entry in graph.inputs} == {"0", "weight"}
    with reference(runners) as runner:
        runner.load(op("return x if x.sum() > 0 else -x"), "Model")
        inputs = runner.make_inputs(1)
        with pytest.raises(ValueError, match="no graph"):
            runner.trace(inputs, exported(runners, runner, inputs))


def test_a_second_runner_of_the_same_kind_is_refused(runners: Runners) -> None:
    with candidate(runners, "return x"), pytest.raises(ValueError, match="still open"):
        runners.spawn(RunnerKind.INTERPRET, Role.CANDIDATE)


def test_buffers_of_another_shape_are_refused(runners: Runners) -> None:
    with candidate(runners, "return x") as runner:
        run(runners, runner)
        wrong = runners.fence.allocate(TensorSpec(shape=[5], stride=[1], dtype="float32"))
        with pytest.raises(RunnerFault):
            runner.collect([wrong])
