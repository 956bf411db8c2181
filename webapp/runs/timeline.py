"""A run as its page shows it: turns, candidates and the steps that each has taken."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from pydantic import TypeAdapter

from services.contracts import Backend, Proposer, Stage, StageResult, Verdict
from webapp.runs.models import Candidate, Evaluation, Run, Turn
from webapp.runs.states import CANDIDATE_ACTIVE, CandidateState, TurnState

HOST_LADDER = (Stage.LINT, Stage.LOAD, Stage.CORRECTNESS, Stage.COMPILE, Stage.ESTIMATE)
CUDA_LADDER = (Stage.LINT, Stage.LOAD, Stage.CORRECTNESS, Stage.COMPILE, Stage.TIMING, Stage.PROFILE)
_STAGES = TypeAdapter(list[StageResult])

STEP_ICONS = {
    "passed": "check",
    "failed": "x",
    "skipped": "minus",
    "active": "loader",
    "pending": "circle-dashed",
}


@dataclass(frozen=True)
class Step:
    """One step; `since` where it is under way, `seconds` where it is over."""

    name: str
    status: str
    seconds: float | None = None
    since: datetime | None = None
    note: str = ""

    @property
    def icon(self) -> str:
        """Icon name."""
        return STEP_ICONS[self.status]


@dataclass(frozen=True)
class CandidateRow:
    """One candidate with its verdict and steps."""

    candidate: Candidate
    evaluation: Evaluation | None
    steps: list[Step]

    @property
    def speedup(self) -> float | None:
        """Of a passed candidate only."""
        return self.evaluation.speedup if self.evaluation and self.evaluation.verdict == Verdict.PASSED else None

    @property
    def outcome(self) -> str:
        """passed, failed (the kernel), errored (ours), cancelled or active."""
        if self.evaluation:
            return "passed" if self.evaluation.verdict == Verdict.PASSED else "failed"
        match self.candidate.state:
            case CandidateState.UNREADABLE:
                return "failed"
            case CandidateState.ERRORED:
                return "errored"
            case CandidateState.CANCELLED:
                return "cancelled"
        return "active"


@dataclass(frozen=True)
class TurnRow:
    """One turn with its candidates."""

    turn: Turn
    rows: list[CandidateRow]
    steps: list[Step]
    """Of the proposal, for a turn without a candidate."""
    best: CandidateRow | None

    @property
    def label(self) -> str:
        """Who proposes."""
        return "Compiler seed" if self.turn.proposer == Proposer.SEED else "Model"

    @property
    def opened(self) -> bool:
        """Whether to show it open: while it goes on, and where something failed."""
        failed = any(row.outcome in {"failed", "errored"} for row in self.rows)
        return self.turn.is_active or failed or self.turn.state in {TurnState.NOTHING, TurnState.ERRORED}

    @property
    def took_seconds(self) -> float | None:
        """From the question to the last verdict."""
        end = self.turn.finished_at
        return (end - self.turn.started_at).total_seconds() if end else None


def timeline(turns: Iterable[Turn]) -> list[TurnRow]:
    """The turns as rows; `turns` come with candidates and evaluations prefetched."""
    rows = []
    for turn in turns:
        propose = _propose_step(turn)
        candidates = [_candidate_row(candidate, propose) for candidate in turn.candidates.all()]
        ahead = [Step(stage, "pending") for stage in HOST_LADDER] if turn.is_active else []
        rows.append(TurnRow(turn, candidates, [propose, *ahead], best_of(candidates)))
    return rows


def best_of(rows: Iterable[CandidateRow]) -> CandidateRow | None:
    """The fastest passed candidate."""
    passed = [row for row in rows if row.outcome == "passed"]
    return max(passed, key=lambda row: row.speedup or 0, default=None)


def _propose_step(turn: Turn) -> Step:
    match turn.state:
        case TurnState.PROPOSING | TurnState.WAITING:
            return Step("propose", "active", since=turn.started_at)
        case TurnState.NOTHING | TurnState.ERRORED:
            return Step("propose", "failed", turn.propose_seconds or None, note=turn.reason)
        case TurnState.CANCELLED if turn.proposed_at is None:
            return Step("propose", "skipped")
    return Step("propose", "passed", turn.propose_seconds)


def _candidate_row(candidate: Candidate, propose: Step) -> CandidateRow:
    evaluation = next(iter(candidate.evaluations.all()), None)
    steps = _judged_steps(evaluation) if evaluation else _open_steps(candidate)
    return CandidateRow(candidate, evaluation, [propose, *steps])


def _judged_steps(evaluation: Evaluation) -> list[Step]:
    done = {result.stage: result for result in _STAGES.validate_python(evaluation.message.get("stages", []))}
    ladder = CUDA_LADDER if evaluation.backend == Backend.CUDA else HOST_LADDER
    order = [*ladder, *(stage for stage in done if stage not in ladder)]
    return [_judged_step(stage, done.get(stage)) for stage in order]


def _judged_step(stage: Stage, result: StageResult | None) -> Step:
    if result is None:
        return Step(stage, "skipped")
    return Step(stage, result.status, result.seconds if result.status != "skipped" else None, note=result.note)


def _open_steps(candidate: Candidate) -> list[Step]:
    if candidate.state not in CANDIDATE_ACTIVE:
        return [Step(stage, "skipped") for stage in HOST_LADDER]
    ladder = list(HOST_LADDER if candidate.stage not in {"timing", "profile"} else CUDA_LADDER)
    at = ladder.index(Stage(candidate.stage)) if candidate.stage in ladder else -1
    return [
        Step(
            stage,
            "passed" if place < at else "active" if place == at else "pending",
            since=candidate.started_at if place == at else None,
        )
        for place, stage in enumerate(ladder)
    ]


def duration_seconds(run: Run) -> float | None:
    """From start to end of a run that is over."""
    start = run.started_at or run.created_at
    return (run.finished_at - start).total_seconds() if run.finished_at else None
