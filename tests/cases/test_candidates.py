"""Candidates that other evaluators are known to let pass, each on the op that makes it tempting."""

from pathlib import Path

import pytest

from services.contracts import EvaluateRequest, Evaluation, OpSpec, Verdict
from services.sandbox.judge.ladder import evaluate
from services.sandbox.runners import Runners
from services.sandbox.settings import SandboxSettings

HERE = Path(__file__).parent


def _judge(op: str, candidate: str, runners: Runners, sandbox_settings: SandboxSettings) -> Evaluation:
    source = (HERE / "ops" / f"{op}.py").read_text()
    request = EvaluateRequest(
        candidate_id=candidate,
        op=OpSpec(op_id=op, name=op, source=source),
        source=(HERE / "candidates" / f"{candidate}.py").read_text(),
    )
    return evaluate(request, runners, settings=sandbox_settings)


@pytest.mark.parametrize(
    ("op", "candidate"),
    [
        ("tiny_softmax_values", "softmax_of_zeros"),
        ("zero_init_affine", "identity_copy_with_state"),
        ("identity_relu", "identity_copy"),
        ("half_the_work_mse", "mse_of_half"),
    ],
)
def test_a_tempting_wrong_answer_fails(op: str, candidate: str, runners: Runners, sandbox_settings: SandboxSettings) -> None:
    evaluation = _judge(op, candidate, runners, sandbox_settings)
    assert evaluation.verdict is Verdict.WRONG_VALUES, evaluation.feedback


@pytest.mark.parametrize(
    ("op", "candidate"),
    [
        ("tiny_softmax_values", "softmax_in_loops"),
        ("half_the_work_mse", "mse_of_all"),
        ("identity_relu", "relu"),
        ("module_global_shapes", "rms_norm_with_other_globals"),
        ("expanded_input", "add_relu_of_any_strides"),
        ("int_labels_cross_entropy", "cross_entropy_rows"),
        ("bf16_gemm_bias_gelu", "linear_then_gelu"),
    ],
)
def test_an_honest_kernel_passes(op: str, candidate: str, runners: Runners, sandbox_settings: SandboxSettings) -> None:
    evaluation = _judge(op, candidate, runners, sandbox_settings)
    assert evaluation.verdict is Verdict.PASSED, evaluation.feedback
    assert evaluation.estimate is not None
    assert all(kernel.compiled for kernel in evaluation.kernels)
