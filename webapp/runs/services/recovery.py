"""Work whose lease ran out is sent again; a lost broker or a killed worker loses nothing."""

from collections import Counter

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from webapp.dispatch import queued_lease
from webapp.ops.models import Op
from webapp.ops.services import retry_screening
from webapp.ops.states import ACTIVE, OpState
from webapp.runs.models import Candidate, Run, Turn
from webapp.runs.services.steps import advance, close_turn, send_candidate, send_proposal
from webapp.runs.states import CANDIDATE_ACTIVE, RUN_ACTIVE, TURN_ACTIVE, CandidateState, TurnState
from webapp.settings import ENV

BATCH = 200
"""Rows of each kind in one sweep."""
_GONE = "The worker that had it was gone."


def recover() -> Counter[str]:
    """Send again everything whose lease ran out; counts by kind."""
    expired = Q(lease_until__lt=timezone.now())
    done: Counter[str] = Counter()
    for op in Op.objects.filter(expired, state__in=ACTIVE)[:BATCH]:
        with transaction.atomic():
            retry_screening(op, _GONE, counts=op.state == OpState.SCREENING)
        done["ops"] += 1
    for turn in Turn.objects.filter(expired, state__in=TURN_ACTIVE).select_related("run__op")[:BATCH]:
        with transaction.atomic():
            _retry_turn(turn)
        done["turns"] += 1
    for candidate in Candidate.objects.filter(expired, state__in=CANDIDATE_ACTIVE).select_related("turn__run__op")[
        :BATCH
    ]:
        with transaction.atomic():
            retry_candidate(candidate, _GONE, counts=candidate.state == CandidateState.EVALUATING)
        done["candidates"] += 1
    for run in _stalled_runs()[:BATCH]:
        advance(run.pk)
        done["runs"] += 1
    return done


def _stalled_runs() -> list[Run]:
    """Active runs without an active turn: the message that would take their next step may be lost."""
    runs = Run.objects.filter(state__in=RUN_ACTIVE).exclude(turns__state__in=TURN_ACTIVE)
    return list(runs.order_by("pk"))


def _retry_turn(turn: Turn) -> None:
    """A turn that waits for the model is asked again; one whose worker died too, until its last attempt."""
    if turn.state == TurnState.EVALUATING:
        close_turn(turn)
        return
    lost = turn.state == TurnState.PROPOSING and bool(turn.worker)
    if lost and turn.attempt >= ENV.max_attempts:
        turn.move(TurnState.ERRORED, reason=f"{_GONE} Tried {turn.attempt} times.", finished_at=timezone.now())
    else:
        rows = Turn.objects.filter(pk=turn.pk, state=turn.state, attempt=turn.attempt)
        attempt = turn.attempt + 1 if lost else turn.attempt
        if rows.update(state=TurnState.PROPOSING, attempt=attempt, worker="", lease_until=queued_lease()):
            turn.refresh_from_db()
            send_proposal(turn)
    Run.touch(turn.run_id)


def retry_candidate(candidate: Candidate, why: str, *, counts: bool) -> None:
    """Have a candidate judged again after a fault of ours; errored after the last attempt that `counts`."""
    Run.touch(candidate.turn.run_id)
    if counts and candidate.attempt >= ENV.max_attempts:
        problem = f"{why} Tried {candidate.attempt} times."
        if candidate.move(CandidateState.ERRORED, problem=problem, finished_at=timezone.now(), lease_until=None):
            close_turn(candidate.turn)
        return
    unchanged = Candidate.objects.filter(pk=candidate.pk, state=candidate.state, attempt=candidate.attempt)
    attempt = candidate.attempt + counts
    if unchanged.update(state=CandidateState.QUEUED, attempt=attempt, stage="", worker="", lease_until=queued_lease()):
        candidate.refresh_from_db()
        send_candidate(candidate)
