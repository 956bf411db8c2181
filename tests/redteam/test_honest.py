"""What honest candidates do must not be taken for an attack: each passes, with a prediction."""

from collections.abc import Iterator

import pytest

from services.contracts import EvaluateRequest, OpSpec, Verdict
from services.sandbox.judge.ladder import evaluate
from services.sandbox.runners import Runners
from services.sandbox.settings import SandboxSettings
from tests.redteam.attacks import OP, Attack

SETTINGS = SandboxSettings(call_s=8.0)

HONEST = {
    "in_place_on_a_copy": (
        "",
        "y = x.clone()\nrelu_twice_kernel[(7,)](y, y, y.numel(), BLOCK=1024)\nreturn y",
    ),
    "on_a_view_then_transposed": (
        "",
        "y = torch.empty(100, 64).t()\nz = honest(x.t().contiguous())\ny.copy_(z.t())\nreturn y",
    ),
    "writes_into_a_buffer_of_its_own": (
        "BUFFER = torch.empty(64, 100)",
        "relu_twice_kernel[(7,)](x, BUFFER, x.numel(), BLOCK=1024)\nreturn BUFFER.clone()",
    ),
    "with_a_large_constant_of_the_file": (
        "import numpy as np\nONES = torch.from_numpy(np.ones((64, 100), np.float32))",
        "return honest(x * ONES)",
    ),
    "caches_a_table_at_first_use": (
        "",
        "if not kept:\n    kept.append(torch.arange(6400, dtype=torch.float32).view(64, 100) * 0)\n"
        "return honest(x + kept[0])",
    ),
    "with_small_constants": ("", "return honest(x * torch.tensor([1.0] * 100))"),
    "with_a_number_read_back": ("", "scale = (x.sum() * 0 + 1).item()\nreturn honest(x * scale)"),
    "in_two_kernels": ("", "return honest(copied(x))"),
    "in_pieces": ("", "return torch.cat([honest(part.contiguous()) for part in x.chunk(2)])"),
    "in_an_autograd_function": (
        "class Twice(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return honest(x)",
        "return Twice.apply(x)",
    ),
    "in_a_custom_op": (
        "@torch.library.custom_op('mine::twice', mutates_args=())\ndef twice(x: torch.Tensor) -> torch.Tensor:\n"
        "    return honest(x)",
        "return twice(x)",
    ),
    "with_out_arguments": ("", "y = torch.empty_like(x)\ntorch.mul(x, 1.0, out=y)\nreturn honest(y)"),
    "with_a_scripted_part": (
        "@torch.jit.script\ndef same(x: torch.Tensor):\n    return x * 1.0 + 0.0",
        "return honest(same(x))",
    ),
}


@pytest.fixture(scope="module")
def runners() -> Iterator[Runners]:
    with Runners(SETTINGS) as opened:
        yield opened


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_candidate_passes(name: str, runners: Runners) -> None:
    before, body = HONEST[name]
    op = OpSpec(op_id="relu_twice", name="relu_twice", source=OP)
    source = Attack(body, Verdict.PASSED, before=before).source
    evaluation = evaluate(EvaluateRequest(candidate_id="1", op=op, source=source), runners, settings=SETTINGS)
    assert evaluation.verdict is Verdict.PASSED, evaluation.feedback
    assert evaluation.estimate is not None, evaluation.estimate_error
