"""Screening of an uploaded Op."""

from enum import StrEnum

from pydantic import Field, JsonValue

from services.contracts.base import Message
from services.contracts.graph import AtenGraph
from services.contracts.tensors import TensorSpec
from services.contracts.verdicts import Backend, IsolationLevel


class TolerancePolicy(StrEnum):
    """How much numerical error an Op allows; `services/sandbox/judge/compare.py` holds the formulas."""

    STRICT = "strict"
    STANDARD = "standard"
    RELAXED = "relaxed"


class OpSpec(Message):
    """An Op as services see it: source that defines Model, get_inputs() and get_init_inputs()."""

    op_id: str
    name: str
    source: str
    policy: TolerancePolicy = TolerancePolicy.STANDARD
    workload: str = "default"


class ScreenRequest(Message):
    """Screen this op, before any Run."""

    op: OpSpec
    target: str = "h200"


class Severity(StrEnum):
    """blocker: no run can start. warning: runs, but the person should know. info: how it will be judged."""

    BLOCKER = "blocker"
    WARNING = "warning"
    INFO = "info"


class Finding(Message):
    """One thing that screening saw, in plain words.

    `title` says what, `detail` where and how it was seen, `mend` what to change.
    """

    code: str
    """Stable slug, e.g. "random_in_train_mode"."""
    severity: Severity
    title: str
    detail: str = ""
    mend: str = ""
    line: int | None = None
    """Line of the op's source."""


class MutantResult(Message):
    """One deliberately wrong answer and whether the checker refused it, as it must."""

    mutant: str
    caught: bool
    detail: str = ""


class ScreenStatus(StrEnum):
    """accepted: runs may start. refused: a blocker was found. infrastructure: ours, screened again."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    INFRASTRUCTURE = "infrastructure"


class OpFacts(Message):
    """What one run of the reference showed. Sizes in bytes; FLOPs of one forward."""

    inputs: list[TensorSpec] = []
    """Tensor leaves of get_inputs() in order."""
    scalars: list[str] = []
    """Non-tensor inputs, described ("scale=0.125")."""
    outputs: list[TensorSpec] = []
    parameter_count: int = 0
    input_bytes: int = 0
    output_bytes: int = 0
    state_bytes: int = 0
    moved_bytes: int = 0
    """Least traffic: every input, parameter and buffer read once, every output written once."""
    eager_bytes: int = 0
    """Traffic of eager mode: every ATen call reads its inputs and writes its outputs."""
    flops: int = 0
    """Multiply and add count as two; counted on the reference's ATen calls."""
    matmul_flops: int = 0
    aten_ops: dict[str, int] = {}
    """Calls of each ATen operator in one forward."""
    floor_us: float | None = None
    """Roofline floor on the target: predicted, not measured."""
    eager_us: float | None = None
    """Roofline estimate of eager mode on the target: predicted, not measured."""
    uses_grad: bool = False
    structure: JsonValue = None
    """Nested structure of the output with leaf indices."""


class ScreeningReport(Message):
    """What screening found; answered to `ops.record_screening`."""

    op_id: str
    status: ScreenStatus
    findings: list[Finding] = []
    mutants: list[MutantResult] = []
    facts: OpFacts | None = None
    graph: AtenGraph | None = None
    graph_error: str = ""
    """Why there is no graph, in one sentence."""
    backend: Backend = Backend.HOST
    target: str = "h200"
    isolation: IsolationLevel
    versions: dict[str, str] = {}
    evaluator_version: str = ""
    worker: str = ""
    seconds: float = Field(0.0, ge=0)

    @property
    def by_severity(self) -> list[Finding]:
        """The findings as a person reads them: what keeps a run from starting first."""
        return sorted(self.findings, key=lambda finding: list(Severity).index(finding.severity))

    @property
    def blockers(self) -> list[Finding]:
        """Findings that keep a run from starting."""
        return [finding for finding in self.findings if finding.severity is Severity.BLOCKER]
