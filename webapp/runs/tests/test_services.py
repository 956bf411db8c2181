"""Runs from start to end, message by message, at the broker's border."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from services import contracts
from services.broker import EVALUATE_CANDIDATE, PROPOSE
from services.contracts import Progress, Proposal, ProposeResult
from webapp.accounts.models import User
from webapp.conftest import Sent
from webapp.dispatch import ADVANCE_RUN
from webapp.fleet.models import Worker
from webapp.library.models import Kernel
from webapp.ops.models import Op
from webapp.ops.states import OpState
from webapp.runs import services
from webapp.runs.models import Candidate, Evaluation, Run, Strategy, Turn
from webapp.runs.services.steps import CannotRun
from webapp.runs.states import CandidateState, RunState, TurnState
from webapp.settings import ENV

pytestmark = pytest.mark.django_db
Make = Callable[..., contracts.Evaluation]


@pytest.fixture(autouse=True)
def commits(django_capture_on_commit_callbacks: Any) -> Any:
    """Everything a test does counts as committed."""
    with django_capture_on_commit_callbacks(execute=True):
        yield


@pytest.fixture
def step(django_capture_on_commit_callbacks: Any, sent: Sent) -> Callable[..., None]:
    """Run a service and every next step that it asks for, as the web's worker would."""

    def run(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with django_capture_on_commit_callbacks(execute=True):
            result = function(*args, **kwargs)
        while pending := [entry for entry in sent if entry[0] == ADVANCE_RUN]:
            for entry in pending:
                sent.remove(entry)
                with django_capture_on_commit_callbacks(execute=True):
                    services.advance(int(entry[1]))  # type: ignore[call-overload]
        return result

    return run


def propose(turn: Turn, *sources: str | None, **fields: Any) -> ProposeResult:
    """A proposer's answer."""
    return ProposeResult(
        turn_id=str(turn.pk),
        outcome=contracts.ProposeOutcome.PROPOSED,
        proposals=[Proposal(source=source, title="try", problem="" if source else "no code") for source in sources],
        **fields,
    )


def answer(turn: Turn, outcome: str, reason: str = "because", **fields: Any) -> ProposeResult:
    """A proposer's answer without proposals."""
    return ProposeResult(turn_id=str(turn.pk), outcome=contracts.ProposeOutcome(outcome), reason=reason, **fields)


def model_is_there() -> None:
    """An inference worker serves a model."""
    Worker.objects.create(name="i", queue="inference", model="coder", last_seen=timezone.now())


def expire(row: Any) -> None:
    """Let a row's lease run out."""
    type(row).objects.filter(pk=row.pk).update(lease_until=timezone.now() - timedelta(seconds=1))


def test_a_seed_that_passes_ends_as_a_passed_run_with_a_kernel(
    ready_op: Op, alice: User, step: Any, sent: Sent, evaluation: Make
) -> None:
    run = step(services.start_run, ready_op, alice)
    turn = run.turns.get()
    assert sent.of(PROPOSE)[0]["proposer"] == "seed"
    step(services.record_proposals, propose(turn, "kernel = 1"))
    candidate = turn.candidates.get()
    assert sent.of(EVALUATE_CANDIDATE)[0]["source"] == "kernel = 1"
    step(services.record_evaluation, evaluation(candidate.pk, speedup=2.5))
    run.refresh_from_db()
    assert (run.state, run.best) == (RunState.PASSED, candidate)
    assert run.reason == "seed 2.50x predicted (against eager)."
    kernel = Kernel.objects.get()
    assert (kernel.version, kernel.source, kernel.verified) == (1, "kernel = 1", False)


def test_the_same_answer_twice_counts_once(ready_op: Op, alice: User, step: Any, sent: Sent, evaluation: Make) -> None:
    run = step(services.start_run, ready_op, alice)
    turn = run.turns.get()
    for _ in range(2):
        step(services.record_proposals, propose(turn, "kernel = 1"))
    candidate = turn.candidates.get()
    step(services.record_evaluation, evaluation(candidate.pk, "wrong_values"))
    step(services.record_evaluation, evaluation(candidate.pk, "passed"))
    assert [row.verdict for row in Evaluation.objects.all()] == ["wrong_values"]
    run.refresh_from_db()
    assert (run.state, run.reason) == (RunState.FAILED, "It wrong_values.")


def test_no_seed_and_no_model_ends_as_failed_with_the_reason(ready_op: Op, alice: User, step: Any) -> None:
    run = step(services.start_run, ready_op, alice)
    step(services.record_proposals, answer(run.turns.get(), "nothing", "no seed: it sorts"))
    run.refresh_from_db()
    assert (run.state, run.reason) == (RunState.FAILED, "no seed: it sorts")


def test_a_proposer_that_breaks_is_our_fault_not_the_kernels(ready_op: Op, alice: User, step: Any) -> None:
    run = step(services.start_run, ready_op, alice)
    step(services.record_proposals, answer(run.turns.get(), "failed", "The key was refused: set INFERENCE_API_KEY."))
    run.refresh_from_db()
    assert (run.state, run.reason) == (RunState.ERRORED, "The key was refused: set INFERENCE_API_KEY.")


def test_model_turns_follow_the_seed_with_its_feedback(
    ready_op: Op, alice: User, step: Any, sent: Sent, evaluation: Make
) -> None:
    model_is_there()
    run = step(services.start_run, ready_op, alice, max_turns=2, samples=2)
    step(services.record_proposals, propose(run.turns.get(index=0), "a = 1"))
    step(services.record_evaluation, evaluation(Candidate.objects.get().pk, speedup=1.5))
    request = sent.of(PROPOSE)[1]
    assert (request["proposer"], request["samples"]) == ("llm", 2)
    assert request["history"][0]["feedback"] == "feedback: passed"
    step(services.record_proposals, propose(run.turns.get(index=1), "b = 2", None))
    better = Candidate.objects.get(source="b = 2")
    step(services.record_evaluation, evaluation(better.pk, speedup=3.0))
    run.refresh_from_db()
    assert (run.state, run.best) == (RunState.PASSED, better)
    assert run.reason == "seed 1.50x predicted, model turn 1 3.00x predicted (against eager)."


def test_a_source_judged_before_is_not_judged_again(
    ready_op: Op, alice: User, step: Any, sent: Sent, evaluation: Make
) -> None:
    model_is_there()
    run = step(services.start_run, ready_op, alice, max_turns=2)
    step(services.record_proposals, propose(run.turns.get(index=0), "a = 1"))
    step(services.record_evaluation, evaluation(Candidate.objects.get().pk))
    step(services.record_proposals, propose(run.turns.get(index=1), "a = 1"))
    assert len(sent.of(EVALUATE_CANDIDATE)) == 1
    assert Candidate.objects.get(turn__index=1).state == CandidateState.UNREADABLE
    run.refresh_from_db()
    assert run.state == RunState.PASSED


def test_a_model_that_is_away_makes_the_run_wait_and_go_on(
    ready_op: Op, alice: User, step: Any, sent: Sent, evaluation: Make
) -> None:
    model_is_there()
    run = step(services.start_run, ready_op, alice, strategy=Strategy.MODEL, max_turns=1)
    turn = run.turns.get()
    step(services.record_proposals, answer(turn, "waiting", "the model is away", retry_after_s=60))
    run.refresh_from_db()
    assert (run.state, run.reason) == (RunState.WAITING, "the model is away")
    assert not step(services.recover)["turns"]
    expire(turn)
    step(services.recover)
    assert len(sent.of(PROPOSE)) == 2
    step(services.record_proposals, propose(turn, "a = 1"))
    step(services.record_evaluation, evaluation(Candidate.objects.get().pk))
    run.refresh_from_db()
    assert run.state == RunState.PASSED


def test_a_lost_candidate_is_sent_again_and_errors_after_the_last_attempt(
    ready_op: Op, alice: User, step: Any, sent: Sent
) -> None:
    run = step(services.start_run, ready_op, alice)
    step(services.record_proposals, propose(run.turns.get(), "a = 1"))
    candidate = Candidate.objects.get()
    for attempt in range(1, ENV.max_attempts + 1):
        step(
            services.record_progress,
            Progress(subject=f"candidate:{candidate.pk}", attempt=attempt, stage=contracts.Stage.LOAD, worker="w"),
        )
        candidate.refresh_from_db()
        assert (candidate.state, candidate.stage) == (CandidateState.EVALUATING, "load")
        expire(candidate)
        step(services.recover)
    assert [message["attempt"] for message in sent.of(EVALUATE_CANDIDATE)] == [1, 2, 3]
    candidate.refresh_from_db()
    run.refresh_from_db()
    assert (candidate.state, run.state) == (CandidateState.ERRORED, RunState.ERRORED)
    assert "Tried 3 times" in run.reason


def test_waiting_in_a_queue_costs_no_attempt(ready_op: Op, alice: User, step: Any, sent: Sent) -> None:
    run = step(services.start_run, ready_op, alice)
    step(services.record_proposals, propose(run.turns.get(), "a = 1"))
    candidate = Candidate.objects.get()
    for _ in range(5):
        expire(candidate)
        step(services.recover)
    candidate.refresh_from_db()
    assert (candidate.state, candidate.attempt) == (CandidateState.QUEUED, 1)
    assert len(sent.of(EVALUATE_CANDIDATE)) == 6


def test_a_late_answer_of_a_dead_workers_twin_still_counts_once(
    ready_op: Op, alice: User, step: Any, evaluation: Make
) -> None:
    run = step(services.start_run, ready_op, alice)
    step(services.record_proposals, propose(run.turns.get(), "a = 1"))
    candidate = Candidate.objects.get()
    step(services.record_progress, Progress(subject=f"candidate:{candidate.pk}", worker="w"))
    expire(candidate)
    step(services.recover)
    step(services.record_evaluation, evaluation(candidate.pk))
    step(services.record_evaluation, evaluation(candidate.pk, attempt=2))
    assert Evaluation.objects.count() == 1
    run.refresh_from_db()
    assert run.state == RunState.PASSED


def test_an_infrastructure_fault_is_tried_again_and_is_never_a_verdict(
    ready_op: Op, alice: User, step: Any, sent: Sent, evaluation: Make
) -> None:
    run = step(services.start_run, ready_op, alice)
    step(services.record_proposals, propose(run.turns.get(), "a = 1"))
    candidate = Candidate.objects.get()
    for attempt in range(1, ENV.max_attempts + 1):
        step(services.record_progress, Progress(subject=f"candidate:{candidate.pk}", attempt=attempt, worker="w"))
        step(services.record_evaluation, evaluation(candidate.pk, "infrastructure", attempt=attempt))
    assert not Evaluation.objects.exists()
    run.refresh_from_db()
    assert run.state == RunState.ERRORED


def test_an_infrastructure_fault_counts_though_no_worker_reported(
    ready_op: Op, alice: User, step: Any, sent: Sent, evaluation: Make
) -> None:
    run = step(services.start_run, ready_op, alice)
    step(services.record_proposals, propose(run.turns.get(), "a = 1"))
    candidate = Candidate.objects.get()
    for attempt in range(1, ENV.max_attempts + 2):
        step(services.record_evaluation, evaluation(candidate.pk, "infrastructure", attempt=attempt))
    assert len(sent.of(EVALUATE_CANDIDATE)) == ENV.max_attempts
    run.refresh_from_db()
    assert run.state == RunState.ERRORED


def test_a_late_fault_of_a_worker_given_up_costs_no_attempt(
    ready_op: Op, alice: User, step: Any, sent: Sent, evaluation: Make
) -> None:
    run = step(services.start_run, ready_op, alice)
    step(services.record_proposals, propose(run.turns.get(), "a = 1"))
    candidate = Candidate.objects.get()
    for _ in range(2):
        step(services.record_evaluation, evaluation(candidate.pk, "infrastructure", attempt=1))
    candidate.refresh_from_db()
    assert (candidate.attempt, len(sent.of(EVALUATE_CANDIDATE))) == (2, 2)


def test_cancel_drops_what_waits_and_lets_a_worker_end_its_step(
    ready_op: Op, alice: User, step: Any, evaluation: Make
) -> None:
    model_is_there()
    run = step(services.start_run, ready_op, alice, strategy=Strategy.MODEL, samples=2)
    step(services.record_proposals, propose(run.turns.get(), "a = 1", "b = 2"))
    working, queued = Candidate.objects.order_by("index")
    step(services.record_progress, Progress(subject=f"candidate:{working.pk}", worker="w"))
    assert step(services.cancel_run, run)
    run.refresh_from_db()
    queued.refresh_from_db()
    assert (run.state, queued.state) == (RunState.CANCELLING, CandidateState.CANCELLED)
    step(services.record_evaluation, evaluation(working.pk))
    run.refresh_from_db()
    assert run.state == RunState.CANCELLED
    assert run.turns.count() == 1
    assert not step(services.cancel_run, run)


def test_cancel_before_any_proposal_ends_at_once(ready_op: Op, alice: User, step: Any) -> None:
    run = step(services.start_run, ready_op, alice)
    step(services.cancel_run, run)
    run.refresh_from_db()
    assert run.state == RunState.CANCELLED
    step(services.record_proposals, propose(run.turns.get(), "a = 1"))
    assert run.turns.get().state == TurnState.CANCELLED
    assert not Candidate.objects.exists()


def test_a_lost_step_is_taken_by_the_next_sweep(ready_op: Op, alice: User, sent: Sent) -> None:
    run = services.start_run(ready_op, alice)
    services.recover()
    run.refresh_from_db()
    assert (run.state, run.turns.count()) == (RunState.RUNNING, 1)


def test_advancing_twice_takes_one_step(ready_op: Op, alice: User, step: Any) -> None:
    run = step(services.start_run, ready_op, alice)
    step(services.advance, run.pk)
    assert Turn.objects.count() == 1


def test_retry_is_a_new_run_of_the_same_settings(ready_op: Op, alice: User, step: Any) -> None:
    run = step(services.start_run, ready_op, alice, max_turns=3)
    with pytest.raises(CannotRun, match="still goes on"):
        services.retry_run(run, alice)
    step(services.cancel_run, run)
    run.refresh_from_db()
    again = step(services.retry_run, run, alice)
    assert (again.retried_from, again.max_turns, again.state) == (run, 3, RunState.QUEUED)
    again.refresh_from_db()
    assert again.state == RunState.RUNNING


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_turns": 0}, "1 to 32 turns"),
        ({"samples": 99}, "1 to 16 samples"),
        ({"target": "gtx480"}, "unknown target GPU"),
        ({"strategy": Strategy.MODEL}, "No model is configured"),
    ],
)
def test_it_refuses_a_run_that_cannot_work(ready_op: Op, alice: User, fields: Any, message: str) -> None:
    with pytest.raises(CannotRun, match=message):
        services.start_run(ready_op, alice, **fields)
    assert not Run.objects.exists()


def test_it_refuses_an_op_that_screening_refused(ready_op: Op, alice: User) -> None:
    Op.objects.update(state=OpState.REFUSED)
    ready_op.refresh_from_db()
    with pytest.raises(CannotRun, match="Screening refused"):
        services.start_run(ready_op, alice)


def test_a_slower_winner_leaves_the_library_as_it_is(ready_op: Op, alice: User, step: Any, evaluation: Make) -> None:
    for source, speedup in (("a = 1", 2.0), ("b = 2", 1.5), ("c = 3", 4.0)):
        run = step(services.start_run, ready_op, alice)
        step(services.record_proposals, propose(run.turns.get(), source))
        step(services.record_evaluation, evaluation(Candidate.objects.get(source=source).pk, speedup=speedup))
    assert list(Kernel.objects.order_by("version").values_list("version", "source")) == [(1, "a = 1"), (2, "c = 3")]
