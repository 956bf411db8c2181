"""Messages between Warpsmith's components: the only code that they share.

Every message is JSON on the wire. A service gets one message and answers with one.
"""

from services.contracts.base import Message
from services.contracts.evaluation import (
    ErrorReport,
    Estimate,
    EvaluateRequest,
    Evaluation,
    FamilyResult,
    Frame,
    KernelReport,
    LintFinding,
    OutputError,
    Progress,
    Stage,
    StageResult,
    StageStatus,
    TargetCompile,
    Timing,
)
from services.contracts.fleet import WorkerReport
from services.contracts.graph import AtenGraph, GraphInput, GraphNode, InputKind, ModuleSpec
from services.contracts.ops import (
    Finding,
    MutantResult,
    OpFacts,
    OpSpec,
    ScreeningReport,
    ScreenRequest,
    ScreenStatus,
    Severity,
    TolerancePolicy,
)
from services.contracts.proposals import (
    Attempt,
    Proposal,
    ProposeOutcome,
    Proposer,
    ProposeRequest,
    ProposeResult,
    Usage,
)
from services.contracts.targets import TARGETS, GpuSpec, target_spec
from services.contracts.tensors import TensorSpec
from services.contracts.verdicts import Backend, Fault, IsolationLevel, Verdict

__all__ = [
    "TARGETS",
    "AtenGraph",
    "Attempt",
    "Backend",
    "ErrorReport",
    "Estimate",
    "EvaluateRequest",
    "Evaluation",
    "FamilyResult",
    "Fault",
    "Finding",
    "Frame",
    "GpuSpec",
    "GraphInput",
    "GraphNode",
    "InputKind",
    "IsolationLevel",
    "KernelReport",
    "LintFinding",
    "Message",
    "ModuleSpec",
    "MutantResult",
    "OpFacts",
    "OpSpec",
    "OutputError",
    "Progress",
    "Proposal",
    "ProposeOutcome",
    "ProposeRequest",
    "ProposeResult",
    "Proposer",
    "ScreenRequest",
    "ScreenStatus",
    "ScreeningReport",
    "Severity",
    "Stage",
    "StageResult",
    "StageStatus",
    "TargetCompile",
    "TensorSpec",
    "Timing",
    "TolerancePolicy",
    "Usage",
    "Verdict",
    "WorkerReport",
    "target_spec",
]
