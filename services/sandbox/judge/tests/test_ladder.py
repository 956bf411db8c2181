import pytest

from services.contracts import EvaluateRequest, Evaluation, OpSpec, Stage, StageStatus, TolerancePolicy, Verdict
from services.sandbox.judge.families import REQUIRED, Family
from services.sandbox.judge.ladder import evaluate
from services.sandbox.judge.tests.sources import MATMUL, MATMUL_CANDIDATE
from services.sandbox.runners import Runners
from services.sandbox.settings import SandboxSettings


def _judge(
    runners: Runners,
    candidate: str = MATMUL_CANDIDATE,
    *,
    op: str = MATMUL,
    policy: TolerancePolicy = TolerancePolicy.STANDARD,
    settings: SandboxSettings | None = None,
    only: tuple[Family, int] | None = None,
) -> Evaluation:
    request = EvaluateRequest(
        candidate_id="1", op=OpSpec(op_id="1", name="op", source=op, policy=policy), source=candidate
    )
    return evaluate(request, runners, settings=settings, only=only)


def test_a_right_candidate_passes_every_stage(runners: Runners) -> None:
    reached: list[Stage] = []
    request = EvaluateRequest(candidate_id="1", op=OpSpec(op_id="1", name="op", source=MATMUL), source=MATMUL_CANDIDATE)
    evaluation = evaluate(request, runners, reached.append)
    assert evaluation.verdict is Verdict.PASSED, evaluation.feedback
    assert reached == [Stage.LINT, Stage.LOAD, Stage.CORRECTNESS, Stage.COMPILE, Stage.ESTIMATE]
    assert [item.status for item in evaluation.stages] == [StageStatus.PASSED] * 5
    assert {item.family for item in evaluation.families} == set(Family)
    (kernel,) = evaluation.kernels
    assert (kernel.name, kernel.launches, kernel.flops) == ("scaled_matmul_kernel", 1, 2 * 64**3)
    assert (kernel.bytes_read, kernel.bytes_written) == (2 * 64 * 64 * 4, 64 * 64 * 4)
    assert kernel.compiled is not None
    assert evaluation.estimate is not None
    assert evaluation.estimate.reference_launches == 2
    assert "not measured" in evaluation.summary


def test_tf32_products_in_a_float32_op_are_a_downgrade(runners: Runners) -> None:
    candidate = MATMUL_CANDIDATE.replace(', input_precision="ieee"', "")
    evaluation = _judge(runners, candidate)
    assert evaluation.verdict is Verdict.PRECISION_DOWNGRADE, evaluation.feedback
    assert "input_precision" in evaluation.feedback
    assert _judge(runners, candidate, policy=TolerancePolicy.RELAXED).verdict is Verdict.PASSED


def test_three_tf32_products_pass_even_the_strict_policy(runners: Runners) -> None:
    candidate = MATMUL_CANDIDATE.replace('"ieee"', '"tf32x3"')
    assert _judge(runners, candidate, policy=TolerancePolicy.STRICT).verdict is Verdict.PASSED


def test_weights_that_are_baked_into_the_source_fail(runners: Runners) -> None:
    candidate = MATMUL_CANDIDATE.replace("x, self.weight, y", "x, torch.ones(64, 64), y")
    assert _judge(runners, candidate).verdict is Verdict.WRONG_VALUES


def test_other_state_is_a_mismatch_with_both_lists(runners: Runners) -> None:
    evaluation = _judge(runners, MATMUL_CANDIDATE.replace("torch.randn(64, 64)", "torch.randn(64, 65)"))
    assert evaluation.verdict is Verdict.STATE_MISMATCH
    assert "parameter weight: float32[64, 64]" in evaluation.feedback
    assert "parameter weight: float32[64, 65]" in evaluation.feedback


def test_state_of_other_names_is_matched_by_order(runners: Runners) -> None:
    evaluation = _judge(runners, MATMUL_CANDIDATE.replace("self.weight", "self.w"))
    assert evaluation.verdict is Verdict.PASSED, evaluation.feedback
    assert "matched by order" in evaluation.feedback


def test_a_kernel_that_the_target_cannot_take_is_a_compile_error(runners: Runners) -> None:
    candidate = MATMUL_CANDIDATE.replace("SIZE=64)", "SIZE=64, num_warps=3)")
    evaluation = _judge(runners, candidate)
    assert evaluation.verdict is Verdict.COMPILE_ERROR, evaluation.feedback
    assert evaluation.error is not None
    assert [item.status for item in evaluation.stages][-1] is StageStatus.FAILED
    assert evaluation.families


def test_device_cuda_in_a_candidate_is_taken_for_the_host(runners: Runners) -> None:
    candidate = MATMUL_CANDIDATE.replace("torch.empty_like(x)", "torch.empty(64, 64, device='cuda')")
    assert _judge(runners, candidate).verdict is Verdict.PASSED


def test_a_failure_is_seen_again_by_its_family_and_seed(runners: Runners) -> None:
    candidate = MATMUL_CANDIDATE.replace("product * scale)", "tl.where(product > 9, 0.0, product * scale))")
    failed = next(item for item in _judge(runners, candidate).families if not item.passed)
    again = _judge(runners, candidate, only=(Family(failed.family), failed.seed))
    assert [(item.family, item.seed, item.message) for item in again.families] == [
        (failed.family, failed.seed, failed.message)
    ]


def test_a_small_budget_still_asks_the_required_families(runners: Runners) -> None:
    evaluation = _judge(runners, settings=SandboxSettings(family_budget_s=0.001))
    assert evaluation.verdict is Verdict.PASSED
    asked = [item.family for item in evaluation.families]
    assert asked[:-1] == list(REQUIRED)
    assert asked[-1] not in REQUIRED, "one more, in a secret order"
    assert "5 of 9 families" in evaluation.feedback


def test_an_op_that_fails_is_not_the_candidates_fault(runners: Runners) -> None:
    evaluation = _judge(runners, op=MATMUL.replace("* self.scale", "* undefined"))
    assert evaluation.verdict is Verdict.INVALID_REFERENCE
    assert "undefined" in evaluation.summary


def test_a_fault_of_ours_is_infrastructure_with_its_reason(runners: Runners, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: object, **__: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(runners.fence, "allocate", break_down)
    evaluation = _judge(runners)
    assert evaluation.verdict is Verdict.INFRASTRUCTURE
    assert "no space left" in evaluation.summary


def test_an_unknown_target_is_refused_by_name(runners: Runners) -> None:
    request = EvaluateRequest(
        candidate_id="1", op=OpSpec(op_id="1", name="op", source=MATMUL), source=MATMUL_CANDIDATE, target="z80"
    )
    evaluation = evaluate(request, runners)
    assert evaluation.verdict is Verdict.INFRASTRUCTURE
    assert "z80" in evaluation.summary
