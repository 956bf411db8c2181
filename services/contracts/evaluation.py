"""Judging a Candidate: the request, the progress and the Evaluation."""

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from services.contracts.base import Message
from services.contracts.ops import OpSpec
from services.contracts.tensors import TensorSpec
from services.contracts.verdicts import Backend, IsolationLevel, Verdict


class EvaluateRequest(Message):
    """Judge this source against this op on this target."""

    candidate_id: str
    attempt: int = 1
    """Counts deliveries of the same candidate; echoed in the answer."""
    op: OpSpec
    source: str
    target: str = "h200"


class Stage(StrEnum):
    """The ladder; an evaluation stops at the first failure."""

    LINT = "lint"
    LOAD = "load"
    CORRECTNESS = "correctness"
    COMPILE = "compile"
    TIMING = "timing"
    PROFILE = "profile"
    ESTIMATE = "estimate"


class StageStatus(StrEnum):
    """How one stage ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class StageResult(Message):
    """One stage with its wall time in seconds."""

    stage: Stage
    status: StageStatus
    seconds: float = Field(ge=0)
    note: str = ""


class Progress(Message):
    """Sent when work on something starts, at each stage and at least every 10 s; renews its lease.

    `subject` is "candidate:<candidate_id>", "op:<op_id>" (a screening) or "turn:<turn_id>" (a proposal).
    """

    subject: str
    attempt: int = 1
    stage: Stage | None = None
    worker: str


class LintFinding(Message):
    """A static hint on the candidate's source; feedback only, never a verdict."""

    code: str
    message: str
    line: int | None = None


class Frame(Message):
    """One traceback frame of the user's file."""

    line: int
    function: str
    code: str = ""


class ErrorReport(Message):
    """What went wrong, where in the candidate's (or op's) file."""

    kind: str
    """Exception class or signal, e.g. "CompilationError", "SIGSEGV"."""
    message: str
    line: int | None = None
    column: int | None = None
    frames: list[Frame] = []
    kernel: str = ""
    detail: str = ""
    """More text, e.g. the compiler's own message with its caret."""


class OutputError(Message):
    """Error of one output leaf under one input family.

    Errors are relative: |y - golden| / (|golden| + rms(golden)), golden being the reference in float64.
    """

    path: str
    """Where in the output's structure, e.g. "[0]['values']"."""
    spec: TensorSpec
    candidate_error: float
    reference_error: float
    tolerance: float
    mismatched: int = 0
    worst_index: list[int] = []
    worst_got: float | None = None
    worst_expected: float | None = None

    @property
    def ratio(self) -> float | None:
        """Candidate's error over eager's own; None where eager is exact."""
        return self.candidate_error / self.reference_error if self.reference_error > 0 else None


class FamilyResult(Message):
    """Correctness under one input family of one workload."""

    workload: str
    family: str
    seed: int
    passed: bool
    skipped: str = ""
    """Why the family says nothing for this op, e.g. the reference itself is not finite there."""
    outputs: list[OutputError] = []
    message: str = ""


class TargetCompile(Message):
    """One kernel compiled for the target GPU. Shared memory in bytes; spills in 4-byte registers."""

    registers: int
    spills: int
    shared_bytes: int
    num_warps: int
    num_stages: int
    features: list[str] = []
    """Instructions seen in the PTX: "wgmma", "mma.sync", "cp.async", "tma", "vector loads"."""
    configurations: int = 1
    """How many autotune configurations were compiled."""
    seconds: float = 0.0


class KernelReport(Message):
    """One generated kernel that the candidate launched in one forward."""

    name: str
    line: int | None = None
    launches: int
    grid: list[int] = []
    constants: dict[str, str] = {}
    """Compile-time constants of the configuration that ran."""
    bytes_read: int | None = None
    """Distinct bytes read from tensor arguments, counted in the interpreter."""
    bytes_written: int | None = None
    bytes_requested: int | None = None
    """All lanes' loads and stores, before any cache."""
    flops: int | None = None
    compiled: TargetCompile | None = None


class Estimate(Message):
    """A roofline prediction for the target GPU. Never a measurement. Times in microseconds."""

    target: str
    reference_us: float = Field(gt=0)
    """Eager: every ATen call as one launch."""
    candidate_us: float = Field(gt=0)
    floor_us: float = Field(ge=0)
    """Least possible for the op's inputs, outputs and FLOPs."""
    bound: str
    """"memory", "compute" or "launch"."""
    candidate_bytes: int
    reference_bytes: int
    candidate_launches: int
    reference_launches: int
    sentence: str
    """For a person: what bounds it and how far from the floor."""

    @property
    def predicted_speedup(self) -> float:
        """Reference time over candidate time, both predicted."""
        return self.reference_us / self.candidate_us


class Timing(Message):
    """A measurement on a real GPU. Times in microseconds."""

    gpu: str
    reference_us: float = Field(gt=0)
    candidate_us: float = Field(gt=0)
    ratio: float = Field(gt=0)
    ratio_low: float = Field(gt=0)
    ratio_high: float = Field(gt=0)
    baseline: str = "eager"
    samples: int = Field(gt=0)


_NEEDS_ERROR = frozenset(
    {
        Verdict.COMPILE_ERROR,
        Verdict.LOAD_ERROR,
        Verdict.RUNTIME_ERROR,
        Verdict.ILLEGAL_MEMORY,
        Verdict.TIMEOUT,
        Verdict.OUT_OF_MEMORY,
        Verdict.STATE_MISMATCH,
        Verdict.INFRASTRUCTURE,
        Verdict.INVALID_REFERENCE,
    }
)
_NEEDS_FAILED_FAMILY = frozenset(
    {
        Verdict.WRONG_SHAPE,
        Verdict.WRONG_DTYPE,
        Verdict.WRONG_STRUCTURE,
        Verdict.WRONG_VALUES,
        Verdict.NON_FINITE,
        Verdict.PRECISION_DOWNGRADE,
        Verdict.NONDETERMINISTIC,
        Verdict.INPUT_MUTATED,
    }
)
_NEEDS_TIMING = frozenset({Verdict.TIMING_MISMATCH, Verdict.IMPOSSIBLE})


class Evaluation(Message):
    """The sandbox's verdict on one Candidate on one kind of GPU, with its evidence.

    Answered to `runs.record_evaluation`.
    """

    candidate_id: str
    attempt: int = 1
    verdict: Verdict
    summary: str
    """One sentence: what happened and, where it failed, what to look at."""
    feedback: str = ""
    """Structured text for the next proposer turn and for the person."""
    backend: Backend
    target: str
    stages: list[StageResult] = []
    lint: list[LintFinding] = []
    error: ErrorReport | None = None
    families: list[FamilyResult] = []
    kernels: list[KernelReport] = []
    library_ops: dict[str, int] = {}
    """ATen calls that the candidate's own forward made (its library part)."""
    estimate: Estimate | None = None
    estimate_error: str = ""
    """Why there is no estimate, where a passed host evaluation has none."""
    timing: Timing | None = None
    isolation: IsolationLevel
    versions: dict[str, str] = {}
    evaluator_version: str
    worker: str = ""
    seconds: float = Field(0.0, ge=0)

    @property
    def predicted_speedup(self) -> float | None:
        """Predicted by the roofline; None where there is no estimate."""
        return self.estimate.predicted_speedup if self.estimate else None

    @property
    def measured_speedup(self) -> float | None:
        """Measured on a GPU; None where nothing was timed."""
        return self.timing.ratio if self.timing else None

    @model_validator(mode="after")
    def _has_its_evidence(self) -> Self:
        failed = [result for result in self.families if not result.passed and not result.skipped]
        if self.verdict is Verdict.PASSED:
            if failed or self.error:
                raise ValueError("a passed evaluation has neither a failed family nor an error")
            if not any(result.passed for result in self.families):
                raise ValueError("a passed evaluation needs at least one passed family")
            if not self.kernels:
                raise ValueError("a passed evaluation names the generated kernels that ran")
            if self.backend is Backend.CUDA and self.timing is None:
                raise ValueError("a passed evaluation on a GPU needs its timing")
            if self.backend is Backend.HOST and self.estimate is None and not self.estimate_error:
                raise ValueError("a passed evaluation on the host needs an estimate, or why there is none")
        if self.verdict in _NEEDS_ERROR and self.error is None:
            raise ValueError(f"{self.verdict} needs an error report")
        if self.verdict in _NEEDS_FAILED_FAMILY and not failed:
            raise ValueError(f"{self.verdict} needs the family that failed")
        if self.verdict in _NEEDS_TIMING and self.timing is None:
            raise ValueError(f"{self.verdict} needs its timing")
        if self.backend is Backend.HOST and self.timing is not None:
            raise ValueError("the host backend measures no time: use an estimate")
        return self
