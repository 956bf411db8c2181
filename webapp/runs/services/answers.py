"""What services answer: proposals, progress, evaluations. Each answer counts once, whoever sends it again."""

import hashlib
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from services import contracts
from services.contracts import Progress, ProposeOutcome, ProposeResult, Verdict
from webapp.dispatch import advance_on_commit, queued_lease, working_lease
from webapp.ops.services import record_screening_progress
from webapp.runs.models import Candidate, Evaluation, Run, Turn
from webapp.runs.services.recovery import retry_candidate
from webapp.runs.services.steps import close_turn, send_candidate
from webapp.runs.states import CANDIDATE_ACTIVE, CandidateState, RunState, TurnState

MODEL_RETRY_S = 30.0


@transaction.atomic
def record_proposals(result: ProposeResult) -> None:
    """Keep a turn's proposals and have them judged; a second answer to the same turn is dropped."""
    turn = Turn.objects.select_related("run__op").filter(pk=int(result.turn_id)).first()
    if turn is None:
        return
    facts: dict[str, Any] = {
        "reason": result.reason,
        "prompt_json": result.prompt,
        "model": result.model,
        "parameters_json": result.parameters,
        "prompt_tokens": result.usage.prompt_tokens,
        "completion_tokens": result.usage.completion_tokens,
        "propose_seconds": result.seconds,
        "worker": result.worker,
    }
    now = timezone.now()
    match result.outcome:
        case ProposeOutcome.PROPOSED:
            if turn.move(TurnState.EVALUATING, proposed_at=now, lease_until=None, **facts):
                turn.run.move(RunState.RUNNING, only_from={RunState.WAITING})
                _add_candidates(turn, result)
        case ProposeOutcome.WAITING:
            wake = now + timedelta(seconds=result.retry_after_s or MODEL_RETRY_S)
            if turn.move(TurnState.WAITING, lease_until=wake, **facts):
                turn.run.move(RunState.WAITING, reason=result.reason)
        case ProposeOutcome.NOTHING | ProposeOutcome.FAILED:
            ended = TurnState.NOTHING if result.outcome is ProposeOutcome.NOTHING else TurnState.ERRORED
            if turn.move(ended, finished_at=now, lease_until=None, **facts):
                turn.run.move(RunState.RUNNING, only_from={RunState.WAITING})
                advance_on_commit(turn.run_id)
    Run.touch(turn.run_id)


def _add_candidates(turn: Turn, result: ProposeResult) -> None:
    judged_before = dict(
        Candidate.objects.filter(turn__run=turn.run).exclude(source="").values_list("source_sha256", "turn__index")
    )
    for index, proposal in enumerate(result.proposals):
        source = proposal.source or ""
        sha256 = hashlib.sha256(source.encode()).hexdigest() if source else ""
        problem = proposal.problem
        if source and sha256 in judged_before:
            problem = f"This is the same source as in turn {judged_before[sha256]}: it was not judged again."
        candidate = Candidate.objects.create(
            turn=turn,
            index=index,
            source=source,
            source_sha256=sha256,
            title=proposal.title[:300],
            answer=proposal.answer,
            problem=problem,
            finish_reason=proposal.finish_reason[:40],
            state=CandidateState.UNREADABLE if problem else CandidateState.QUEUED,
            lease_until=None if problem else queued_lease(),
            finished_at=timezone.now() if problem else None,
        )
        if not problem:
            judged_before[sha256] = turn.index
            send_candidate(candidate)
    close_turn(turn)


@transaction.atomic
def record_progress(progress: Progress) -> None:
    """A worker is at it: renew the lease of what it works on, and show the stage."""
    kind, _, key = progress.subject.partition(":")
    if not key.isdigit():
        raise ValueError(f"progress of an unknown subject {progress.subject!r}")
    match kind:
        case "op":
            record_screening_progress(int(key), progress)
        case "turn":
            Turn.objects.filter(pk=int(key), state=TurnState.PROPOSING, attempt=progress.attempt).update(
                lease_until=working_lease(), worker=progress.worker
            )
        case "candidate":
            _candidate_progress(int(key), progress)
        case _:
            raise ValueError(f"progress of an unknown subject {progress.subject!r}")


def _candidate_progress(pk: int, progress: Progress) -> None:
    candidate = Candidate.objects.select_related("turn").filter(pk=pk, attempt=progress.attempt).first()
    if candidate is None:
        return
    stage = progress.stage.value if progress.stage else candidate.stage
    candidate.move(CandidateState.EVALUATING, only_from={CandidateState.QUEUED}, started_at=timezone.now())
    changed = candidate.stage != stage
    Candidate.objects.filter(pk=pk, state=CandidateState.EVALUATING).update(
        stage=stage, worker=progress.worker, lease_until=working_lease()
    )
    if changed:
        Run.touch(candidate.turn.run_id)


@transaction.atomic
def record_evaluation(report: contracts.Evaluation) -> None:
    """Keep a verdict; a second one for the same candidate is dropped. A fault of ours is tried again."""
    candidate = (
        Candidate.objects.select_related("turn__run__op")
        .filter(pk=int(report.candidate_id), state__in=CANDIDATE_ACTIVE)
        .first()
    )
    if candidate is None:
        return
    Run.touch(candidate.turn.run_id)
    if report.verdict is Verdict.INFRASTRUCTURE:
        if report.attempt != candidate.attempt:  # of a worker that was given up; another has the candidate now
            return
        retry_candidate(candidate, report.summary, counts=True)
        return
    if not candidate.move(CandidateState.JUDGED, finished_at=timezone.now(), lease_until=None, stage=""):
        return
    Evaluation.objects.create(
        candidate=candidate,
        target=report.target,
        backend=report.backend,
        verdict=report.verdict,
        summary=report.summary,
        predicted_speedup=report.predicted_speedup,
        measured_speedup=report.measured_speedup,
        isolation=report.isolation,
        evaluator_version=report.evaluator_version,
        message=report.model_dump(mode="json"),
    )
    close_turn(candidate.turn)
