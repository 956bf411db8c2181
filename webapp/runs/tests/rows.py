"""Rows as services would have written them, for tests of pages."""

from typing import Any

from django.test import Client

from services.contracts import (
    Backend,
    ErrorReport,
    Estimate,
    Evaluation,
    FamilyResult,
    Finding,
    Frame,
    IsolationLevel,
    KernelReport,
    LintFinding,
    MutantResult,
    OpFacts,
    OutputError,
    Proposal,
    ProposeOutcome,
    ProposeResult,
    ScreeningReport,
    ScreenStatus,
    Severity,
    Stage,
    StageResult,
    StageStatus,
    TargetCompile,
    TensorSpec,
    Timing,
    Verdict,
    WorkerReport,
)
from webapp.accounts.models import User
from webapp.accounts.services import ensure_team
from webapp.fleet.services import record_worker
from webapp.ops.models import Op
from webapp.ops.services import create_op, record_screening
from webapp.runs.models import Candidate, Run, Turn
from webapp.runs.services import advance, record_evaluation, record_proposals, start_run

OP_SOURCE = '''"""Softmax of a scaled row."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x * 0.125, dim=-1)


def get_inputs():
    return [torch.randn(64, 781)]


def get_init_inputs():
    return []
'''
KERNEL_SOURCE = """import torch
import triton
import triton.language as tl


@triton.jit
def scaled_softmax(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=-float("inf")) * 0.125
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * n_cols + cols, e / tl.sum(e, axis=0), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        scaled_softmax[(x.shape[0],)](x, y, x.shape[1], BLOCK=1024, num_warps=4)
        return y
"""
SPEC = TensorSpec(shape=[64, 781], stride=[781, 1], dtype="float32")


def bare(candidate: Candidate, verdict: Verdict) -> Evaluation:
    """The least evidence that this verdict may have: kernels not compiled, no estimate, errors without a place."""
    timed = verdict in {Verdict.TIMING_MISMATCH, Verdict.IMPOSSIBLE}
    happy = verdict is Verdict.PASSED
    timing = Timing(
        gpu="NVIDIA H200", reference_us=9, candidate_us=3, ratio=3, ratio_low=2.9, ratio_high=3.1, samples=100
    )
    return Evaluation(
        candidate_id=str(candidate.pk),
        attempt=candidate.attempt,
        verdict=verdict,
        summary=f"It ended with {verdict.label}.",
        backend=Backend.CUDA if timed else Backend.HOST,
        target="h200",
        error=None if happy or timed else ErrorReport(kind="Error", message="it broke"),
        families=[FamilyResult(workload="default", family="as given", seed=1, passed=happy or timed)],
        kernels=[KernelReport(name="k", launches=1)],
        estimate_error="the op is not known" if happy else "",
        timing=timing if timed else None,
        isolation=IsolationLevel.NONE,
        evaluator_version="1",
    )


def client_of(user: User) -> Client:
    """A browser in which this user is signed in."""
    client = Client()
    client.force_login(user)
    return client


def screening(op: Op, **changes: Any) -> ScreeningReport:
    """An accepted screening report of `OP_SOURCE`."""
    fields: dict[str, Any] = {
        "op_id": str(op.pk),
        "status": ScreenStatus.ACCEPTED,
        "findings": [
            Finding(
                code="unused_import",
                severity=Severity.WARNING,
                title="The scale is a literal",
                detail="0.125 stands in forward().",
                mend="Pass it to __init__ to try others.",
                line=8,
            )
        ],
        "mutants": [
            MutantResult(mutant="zeros", caught=True, detail="error 1.0"),
            MutantResult(mutant="nan", caught=True),
        ],
        "facts": OpFacts(
            inputs=[SPEC],
            outputs=[SPEC],
            moved_bytes=399_872,
            eager_bytes=799_744,
            flops=249_920,
            aten_ops={"aten.mul.Tensor": 1, "aten._softmax.default": 1},
            floor_us=3.1,
            eager_us=8.4,
        ),
        "isolation": IsolationLevel.FULL,
        "evaluator_version": "1",
        "seconds": 3.21,
    }
    return ScreeningReport(**(fields | changes))


def passed(candidate: Candidate, speedup: float = 2.43, **changes: Any) -> Evaluation:
    """A passed host evaluation with this predicted speedup."""
    fields: dict[str, Any] = {
        "candidate_id": str(candidate.pk),
        "attempt": candidate.attempt,
        "verdict": Verdict.PASSED,
        "summary": "Right on all 9 input families; predicted memory-bound.",
        "feedback": "One kernel, 32 registers, no spills.",
        "backend": Backend.HOST,
        "target": "h200",
        "stages": [
            StageResult(stage=stage, status=StageStatus.PASSED, seconds=took)
            for stage, took in zip(
                (Stage.LINT, Stage.LOAD, Stage.CORRECTNESS, Stage.COMPILE, Stage.ESTIMATE),
                (0.004, 0.31, 2.43, 0.52, 0.011),
                strict=True,
            )
        ],
        "lint": [LintFinding(code="W1", message="BLOCK is fixed: rows longer than 1024 fail", line=20)],
        "families": [
            FamilyResult(
                workload="default",
                family=family,
                seed=seed,
                passed=True,
                outputs=[OutputError(path="", spec=SPEC, candidate_error=5e-8, reference_error=4e-8, tolerance=1e-4)],
            )
            for seed, family in enumerate(("as given", "negated", "ramp", "x0.01"), 41)
        ],
        "kernels": [
            KernelReport(
                name="scaled_softmax",
                line=7,
                launches=1,
                grid=[64],
                constants={"BLOCK": "1024"},
                bytes_read=199_936,
                bytes_written=199_936,
                flops=249_920,
                compiled=TargetCompile(
                    registers=32, spills=0, shared_bytes=32, num_warps=4, num_stages=3, features=["vector loads"]
                ),
            )
        ],
        "estimate": Estimate(
            target="h200",
            reference_us=8.4,
            candidate_us=8.4 / speedup,
            floor_us=3.1,
            bound="launch",
            candidate_bytes=399_872,
            reference_bytes=799_744,
            candidate_launches=1,
            reference_launches=2,
            sentence="Predicted launch-bound: moves 400 kB in 1 launch, the least possible; eager moves 800 kB in 2.",
        ),
        "isolation": IsolationLevel.FULL,
        "versions": {"torch": "2.13.0", "triton": "3.7.1"},
        "evaluator_version": "1",
        "worker": "sandbox@here",
        "seconds": 3.28,
    }
    return Evaluation(**(fields | changes))


def failed(candidate: Candidate) -> Evaluation:
    """A candidate that does not compile, with its line."""
    return Evaluation(
        candidate_id=str(candidate.pk),
        attempt=candidate.attempt,
        verdict=Verdict.COMPILE_ERROR,
        summary="The kernel scaled_softmax does not compile: tl.exp got an integer on line 12.",
        feedback="Cast to float32 before tl.exp.",
        backend=Backend.HOST,
        target="h200",
        stages=[
            StageResult(stage=Stage.LINT, status=StageStatus.PASSED, seconds=0.004),
            StageResult(stage=Stage.LOAD, status=StageStatus.PASSED, seconds=0.3),
            StageResult(stage=Stage.CORRECTNESS, status=StageStatus.FAILED, seconds=0.6),
        ],
        error=ErrorReport(
            kind="CompilationError",
            message="Expected dtype ['fp32', 'fp64'] but got int32",
            line=12,
            kernel="scaled_softmax",
            frames=[
                Frame(line=20, function="forward", code="scaled_softmax[...]"),
                Frame(line=12, function="scaled_softmax"),
            ],
            detail="at 6:8:\n    e = tl.exp(x - tl.max(x, axis=0))\n        ^",
        ),
        isolation=IsolationLevel.REDUCED,
        evaluator_version="1",
        seconds=0.9,
    )


def propose(turn: Turn, *sources: str, title: str = "compiler seed: 1 kernel fuses 2 ATen calls") -> list[Candidate]:
    """Answer a turn with these sources."""
    record_proposals(
        ProposeResult(
            turn_id=str(turn.pk),
            attempt=turn.attempt,
            outcome=ProposeOutcome.PROPOSED,
            proposals=[Proposal(source=source, title=title) for source in sources],
            worker="inference@here",
            seconds=0.18,
        )
    )
    return list(turn.candidates.order_by("index"))


def screened_op(owner: User, **changes: Any) -> Op:
    """An op with its report."""
    op = uploaded_op(owner)
    record_screening(screening(op, **changes))
    op.refresh_from_db()
    return op


def uploaded_op(owner: User, name: str = "softmax_scale") -> Op:
    """An op that waits for its screening."""
    return create_op(ensure_team(owner), owner, name, OP_SOURCE, target="h200")


def begun_run(owner: User, op: Op | None = None) -> Run:
    """A run that has begun its first turn."""
    run = start_run(op or screened_op(owner), owner)
    return stepped(run)


def stepped(run: Run) -> Run:
    """The run after its next step."""
    advance(run.pk)
    run.refresh_from_db()
    return run


def proposed(run: Run) -> Candidate:
    """The seed's candidate, not judged yet."""
    return propose(run.turns.get(), KERNEL_SOURCE)[0]


def passed_run(owner: User, op: Op | None = None) -> Run:
    """A run whose seed passed, with its kernel in the library."""
    run = begun_run(owner, op)
    record_evaluation(passed(proposed(run)))
    return stepped(run)


def failed_run(owner: User, op: Op | None = None) -> Run:
    """A run whose seed does not compile."""
    run = begun_run(owner, op)
    record_evaluation(failed(proposed(run)))
    return stepped(run)


def report_workers() -> None:
    """One sandbox worker, and one inference worker with a model."""
    versions = {"torch": "2.13.0", "triton": "3.7.1"}
    record_worker(
        WorkerReport(
            name="sandbox@here",
            queue="sandbox.cpu",
            backend=Backend.HOST,
            isolation=IsolationLevel.FULL,
            versions=versions,
        )
    )
    record_worker(WorkerReport(name="inference@here", queue="inference", model="tiny-coder"))
