"""A run's way from turn to turn."""

from typing import NamedTuple

from django.db import IntegrityError, transaction
from django.utils import timezone

from services.broker import EVALUATE_CANDIDATE, INFERENCE_QUEUE, PROPOSE
from services.contracts import (
    Attempt,
    EvaluateRequest,
    Proposer,
    ProposeRequest,
    Verdict,
    target_spec,
)
from webapp.accounts.models import User
from webapp.dispatch import advance_on_commit, queued_lease, send_on_commit
from webapp.fleet.selectors import configured_model, queue_for_target
from webapp.library.services import publish_winner
from webapp.ops.models import Op
from webapp.ops.selectors import graph_of
from webapp.ops.states import OpState
from webapp.runs.models import Candidate, Evaluation, Run, Strategy, Turn
from webapp.runs.states import (
    CANDIDATE_ACTIVE,
    RUN_ACTIVE,
    RUN_TERMINAL,
    TURN_ACTIVE,
    CandidateState,
    RunState,
    TurnState,
)

MAX_TURNS = 32
MAX_SAMPLES = 16


class CannotRun(ValueError):
    """The run cannot start; the message says why and what to do."""


class Step(NamedTuple):
    """What the next turn asks of whom."""

    proposer: Proposer
    samples: int


@transaction.atomic
def start_run(
    op: Op,
    owner: User,
    *,
    strategy: Strategy = Strategy.SEED_THEN_MODEL,
    target: str = "",
    max_turns: int = 4,
    samples: int = 1,
    retried_from: Run | None = None,
) -> Run:
    """Start an optimisation of a screened op. `max_turns` counts the seed's turn too.

    Raises CannotRun in plain words.
    """
    if op.state != OpState.READY:
        raise CannotRun(
            "Screening refused this op: see its findings for what to change."
            if op.state == OpState.REFUSED
            else "This op is not screened yet: wait for the screening report, or screen it again."
        )
    if not 1 <= max_turns <= MAX_TURNS:
        raise CannotRun(f"Choose 1 to {MAX_TURNS} turns.")
    if not 1 <= samples <= MAX_SAMPLES:
        raise CannotRun(f"Choose 1 to {MAX_SAMPLES} samples a turn.")
    try:
        spec = target_spec(target or op.target)
    except ValueError as error:
        raise CannotRun(str(error)) from error
    if strategy == Strategy.MODEL and not configured_model():
        raise CannotRun("No model is configured: set INFERENCE_BASE_URL for the inference worker, or use the seed.")
    run = Run.objects.create(
        op=op,
        owner=owner,
        strategy=strategy,
        target=spec.name,
        max_turns=max_turns,
        samples=samples,
        retried_from=retried_from,
        lease_until=queued_lease(),
    )
    advance_on_commit(run.pk)
    return run


def retry_run(run: Run, owner: User) -> Run:
    """A new run with the same settings. Raises CannotRun while the old one still goes on."""
    if run.state in RUN_ACTIVE:
        raise CannotRun("This run still goes on: cancel it first, or wait for its end.")
    return start_run(
        run.op,
        owner,
        strategy=Strategy(run.strategy),
        target=run.target,
        max_turns=run.max_turns,
        samples=run.samples,
        retried_from=run,
    )


@transaction.atomic
def cancel_run(run: Run) -> bool:
    """Stop a run: what waits is dropped now, what a worker has in hand ends its step first. False if it was over."""
    if not run.move(RunState.CANCELLING, reason="Cancelled."):
        return False
    now = timezone.now()
    for turn in run.turns.filter(state__in={TurnState.PROPOSING, TurnState.WAITING}):
        turn.move(TurnState.CANCELLED, lease_until=None, finished_at=now)
    for candidate in Candidate.objects.filter(turn__run=run, state=CandidateState.QUEUED):
        candidate.move(CandidateState.CANCELLED, lease_until=None, finished_at=now)
    for turn in run.turns.filter(state=TurnState.EVALUATING):
        close_turn(turn)
    Run.touch(run.pk)
    advance_on_commit(run.pk)
    return True


@transaction.atomic
def advance(run_id: int) -> None:
    """Take the run's next step, if no turn is under way; safe to call at any time, from any worker."""
    run = Run.objects.select_related("op").filter(pk=run_id).first()
    if run is None or run.state in RUN_TERMINAL or run.turns.filter(state__in=TURN_ACTIVE).exists():
        return
    if run.state == RunState.CANCELLING:
        _finish(run, RunState.CANCELLED, "Cancelled.")
        return
    if run.state == RunState.QUEUED:
        run.move(RunState.RUNNING, started_at=timezone.now(), lease_until=None)
    turns = list(run.turns.all())
    step = _next_step(run, turns)
    if step is None:
        _conclude(run, turns)
        return
    try:
        with transaction.atomic():
            turn = Turn.objects.create(run=run, index=len(turns), proposer=step.proposer, lease_until=queued_lease())
    except IntegrityError:  # another process took this step
        return
    Run.touch(run.pk)
    send_proposal(turn)


def _next_step(run: Run, turns: list[Turn]) -> Step | None:
    if len(turns) >= run.max_turns:
        return None
    if not turns and run.strategy != Strategy.MODEL:
        return Step(Proposer.SEED, 1)
    if run.strategy == Strategy.SEED or not configured_model():
        return None
    if turns and turns[-1].proposer == Proposer.LLM and turns[-1].state in {TurnState.NOTHING, TurnState.ERRORED}:
        return None
    return Step(Proposer.LLM, run.samples)


def send_proposal(turn: Turn) -> None:
    """Ask the inference service for this turn's candidates."""
    run = turn.run
    report = run.op.report
    request = ProposeRequest(
        turn_id=str(turn.pk),
        attempt=turn.attempt,
        proposer=Proposer(turn.proposer),
        op=run.op.spec(),
        facts=report.facts if report else None,
        graph=graph_of(run.op) if turn.proposer == Proposer.SEED else None,
        graph_error=report.graph_error if report else "",
        target=run.target,
        turn_index=turn.index,
        samples=1 if turn.proposer == Proposer.SEED else run.samples,
        history=_history(run, turn) if turn.proposer == Proposer.LLM else [],
    )
    send_on_commit(PROPOSE, request, queue=INFERENCE_QUEUE, expires=turn.lease_until)


def _history(run: Run, turn: Turn) -> list[Attempt]:
    candidates = (
        Candidate.objects.filter(turn__run=run, turn__index__lt=turn.index)
        .select_related("turn")
        .prefetch_related("evaluations")
        .order_by("turn__index", "index")
    )
    attempts = []
    for candidate in candidates:
        evaluation = candidate.evaluations.first()
        attempts.append(
            Attempt(
                turn=candidate.turn.index,
                source=candidate.source,
                verdict=Verdict(evaluation.verdict) if evaluation else None,
                speedup=evaluation.speedup if evaluation else None,
                speedup_measured=bool(evaluation and evaluation.measured_speedup is not None),
                feedback=evaluation.report.feedback if evaluation else candidate.problem,
            )
        )
    return attempts


def send_candidate(candidate: Candidate) -> None:
    """Have the sandbox judge this candidate."""
    run = candidate.turn.run
    request = EvaluateRequest(
        candidate_id=str(candidate.pk),
        attempt=candidate.attempt,
        op=run.op.spec(),
        source=candidate.source,
        target=run.target,
    )
    send_on_commit(EVALUATE_CANDIDATE, request, queue=queue_for_target(run.target), expires=candidate.lease_until)


def close_turn(turn: Turn) -> None:
    """End a turn whose candidates are all done, and take the run's next step."""
    if turn.candidates.filter(state__in=CANDIDATE_ACTIVE).exists():
        return
    if turn.move(TurnState.DONE, only_from={TurnState.EVALUATING}, finished_at=timezone.now(), lease_until=None):
        advance_on_commit(turn.run_id)


def _conclude(run: Run, turns: list[Turn]) -> None:
    evaluations = (
        Evaluation.objects.filter(candidate__turn__run=run, verdict=Verdict.PASSED)
        .select_related("candidate__turn__run__op")
        .order_by("pk")
    )
    best = max(evaluations, key=lambda row: row.speedup or 0, default=None)
    if best is not None:
        run.best = best.candidate
        Run.objects.filter(pk=run.pk).update(best=best.candidate)
        publish_winner(best.candidate, best)
        _finish(run, RunState.PASSED, _gains(turns))
    elif fault := _own_fault(run, turns):
        _finish(run, RunState.ERRORED, fault)
    else:
        _finish(run, RunState.FAILED, _first_reason(run, turns))


def _own_fault(run: Run, turns: list[Turn]) -> str:
    """What went wrong on our side or in the set-up, not in a kernel; empty where nothing did."""
    reasons = [turn.reason for turn in turns if turn.state == TurnState.ERRORED]
    errored = Candidate.objects.filter(turn__run=run, state=CandidateState.ERRORED)
    return next(iter([*reasons, *errored.values_list("problem", flat=True)]), "")


def _gains(turns: list[Turn]) -> str:
    """What each turn gained, e.g. "seed 2.4x predicted, llm 1: wrong values"."""
    parts = []
    for turn in turns:
        label = "seed" if turn.proposer == Proposer.SEED else f"model turn {turn.index}"
        rows = [row for candidate in turn.candidates.all() for row in candidate.evaluations.all()]
        passed = [row for row in rows if row.verdict == Verdict.PASSED]
        if passed:
            best = max(passed, key=lambda row: row.speedup or 0)
            kind = "measured" if best.measured_speedup is not None else "predicted"
            parts.append(f"{label} {best.speedup:.2f}x {kind}" if best.speedup else f"{label} passed")
        elif rows:
            parts.append(f"{label} {Verdict(rows[0].verdict).label}")
        else:
            parts.append(f"{label} no candidate")
    return ", ".join(parts) + " (against eager)."


def _first_reason(run: Run, turns: list[Turn]) -> str:
    for candidate in Candidate.objects.filter(turn__run=run).prefetch_related("evaluations"):
        if evaluation := candidate.evaluations.first():
            return evaluation.summary
        if candidate.problem:
            return candidate.problem
    return next((turn.reason for turn in turns if turn.reason), "No proposer had a candidate.")


def _finish(run: Run, state: RunState, reason: str) -> None:
    if run.move(state, reason=reason, finished_at=timezone.now(), lease_until=None):
        Run.touch(run.pk)
