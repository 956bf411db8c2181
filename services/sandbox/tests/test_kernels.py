"""Candidates with Triton kernels, through the whole runner: interpreted, counted, disabled, compiled for a target."""

import pytest
import torch

from services.contracts import Verdict
from services.sandbox.fence import Buffer
from services.sandbox.runners import Role, Runner, RunnerFault, RunnerKind, Runners, Tree
from services.sandbox.tests.subjects import exported

SIZE = 1000
SOURCE = """
import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < LIMIT
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, x * 2, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x, device="cuda")
        double_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
        return torch.relu(y)


def get_inputs():
    return [torch.rand(1000)]


def get_init_inputs():
    return []
"""


def loaded(runner: Runner, limit: str = "n") -> Tree:
    runner.load(SOURCE.replace("LIMIT", limit), "ModelNew", map_cuda=True)
    return runner.make_inputs(1)


@pytest.fixture
def runner(runners: Runners) -> Runner:
    return runners.spawn(RunnerKind.INTERPRET, Role.CANDIDATE)


def output(runners: Runners, runner: Runner, inputs: Tree, buffers: list[Buffer], disabled: bool) -> torch.Tensor:
    forward = runner.forward(inputs, buffers, kernels_disabled=disabled, fill_uninitialized=-7.0)
    result = runners.fence.allocate(forward.outputs.leaves[0].spec)
    runner.collect([result])
    return result.tensor


def test_a_launch_is_listed_and_counted(runners: Runners, runner: Runner) -> None:
    with runner:
        inputs = loaded(runner)
        buffers = exported(runners, runner, inputs)
        forward = runner.forward(inputs, buffers, count=True)
        (launch,) = forward.launches
        assert (launch.kernel, launch.line, launch.grid) == ("double_kernel", 8, [4, 1, 1])
        assert launch.constants == {"BLOCK": "256"}
        assert (launch.bytes_read, launch.bytes_written) == (4 * SIZE, 4 * SIZE)
        assert launch.dot_flops == 0
        assert forward.aten is not None
        relu = next(call for call in forward.aten if call.name == "aten.relu.default")
        assert (relu.bytes_read, relu.bytes_written, relu.flops) == (4 * SIZE, 4 * SIZE, SIZE)
        assert not relu.matmul
        assert runner.forward(inputs, buffers).launches[0].bytes_read is None


def test_disabled_kernels_do_nothing_and_change_the_output(runners: Runners, runner: Runner) -> None:
    with runner:
        inputs = loaded(runner)
        buffers = exported(runners, runner, inputs)
        assert torch.equal(output(runners, runner, inputs, buffers, False), buffers[0].tensor * 2)
        assert torch.equal(output(runners, runner, inputs, buffers, True), torch.zeros(SIZE))


@pytest.mark.parametrize("limit", ["n + 1", "n + 24", "n + 5000000"])
def test_one_element_too_far_is_illegal_memory_with_the_kernels_line(
    runners: Runners, runner: Runner, limit: str
) -> None:
    with runner:
        inputs = loaded(runner, limit)
        with pytest.raises(RunnerFault) as caught:
            runner.forward(inputs, exported(runners, runner, inputs))
        assert caught.value.verdict is Verdict.ILLEGAL_MEMORY
        report = caught.value.report
        assert (report.kernel, report.line) == ("double_kernel", 11)
        assert "element 1000 of argument 'x_ptr'" in report.message


@pytest.mark.parametrize("target", ["h200", "a100", "b200"])
def test_a_kernel_is_compiled_for_each_target(runners: Runners, target: str) -> None:
    with runners.spawn(RunnerKind.COMPILE, Role.CANDIDATE, target=target) as runner:
        inputs = loaded(runner)
        (kernel,) = runner.compile_target(inputs, exported(runners, runner, inputs))
        assert (kernel.kernel, kernel.line) == ("double_kernel", 8)
        assert kernel.registers > 0
        assert kernel.spills == 0
        assert kernel.num_warps == 4


def test_a_front_end_error_is_a_compile_error_with_its_place(runners: Runners) -> None:
    with runners.spawn(RunnerKind.COMPILE, Role.CANDIDATE) as runner:
        inputs = loaded(runner, "undefined_name")
        with pytest.raises(RunnerFault) as caught:
            runner.compile_target(inputs, exported(runners, runner, inputs))
        assert caught.value.verdict is Verdict.COMPILE_ERROR
        report = caught.value.report
        assert (report.kernel, report.line) == ("double_kernel", 10)
        assert "undefined_name" in report.message


@pytest.mark.parametrize(
    ("statement", "verdict"),
    [
        ("undefined_name", Verdict.COMPILE_ERROR),
        ("tl.arange(0, 3).to(tl.int32)", Verdict.COMPILE_ERROR),
        ("tl.device_assert(n < 0, 'never') or n", Verdict.RUNTIME_ERROR),
    ],
)
def test_errors_in_a_kernels_body_are_compile_errors_unless_the_device_raises_them(
    runners: Runners, runner: Runner, statement: str, verdict: Verdict
) -> None:
    with runner:
        inputs = loaded(runner, statement)
        with pytest.raises(RunnerFault) as caught:
            runner.forward(inputs, exported(runners, runner, inputs))
        assert caught.value.verdict is verdict
        assert (caught.value.report.kernel, caught.value.report.line) == ("double_kernel", 10)


def test_cuda_in_an_op_names_the_line_and_the_mend(runners: Runners) -> None:
    with runners.spawn(RunnerKind.INTERPRET, Role.REFERENCE) as runner:
        runner.load(SOURCE, "ModelNew")
        inputs = runner.make_inputs(1)
        with pytest.raises(RunnerFault) as caught:
            runner.forward(inputs, exported(runners, runner, inputs))
        assert caught.value.report.kind == "CudaUnavailable"
        assert caught.value.report.line == 17
        assert "device=x.device" in caught.value.report.message
