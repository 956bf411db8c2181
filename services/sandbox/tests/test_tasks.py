"""The tasks as Celery runs them; only the broker is replaced."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from billiard.einfo import ExceptionInfo
from celery import Task
from celery.exceptions import WorkerLostError
from celery.worker.request import Request

from services import reports
from services.broker import RECORD_EVALUATION, RECORD_PROGRESS, RECORD_SCREENING, RECORD_WORKER, app
from services.contracts import (
    EvaluateRequest,
    Evaluation,
    OpSpec,
    Progress,
    ScreeningReport,
    ScreenRequest,
    ScreenStatus,
    Stage,
    Verdict,
    WorkerReport,
)
from services.sandbox import tasks, worker
from services.sandbox.runners import InfrastructureFault, Runners

CASES = Path(__file__).parents[3] / "tests/cases"
OP = OpSpec(op_id="5", name="relu", source=(CASES / "ops/identity_relu.py").read_text())
SMALL_OP = OP.model_copy(update={"source": OP.source.replace("1024, 1024", "32, 64")})
EVALUATE = EvaluateRequest(
    candidate_id="9", attempt=2, op=SMALL_OP, source=(CASES / "candidates/relu.py").read_text()
).model_dump(mode="json")
SCREEN = ScreenRequest(op=SMALL_OP).model_dump(mode="json")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """Messages that would have gone to the web."""
    messages: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(app, "send_task", lambda name, args: messages.append((name, args[0])))
    return messages


@pytest.fixture(autouse=True)
def _stop_runners() -> Iterator[None]:
    yield
    tasks.close_runners()


def _answers(sent: list[tuple[str, dict[str, Any]]], name: str) -> list[dict[str, Any]]:
    return [message for task, message in sent if task == name]


def test_an_evaluation_is_answered_after_its_progress(sent: list[tuple[str, dict[str, Any]]]) -> None:
    tasks.evaluate_candidate.apply(args=(EVALUATE,))
    assert sent[-1][0] == RECORD_EVALUATION
    evaluation = Evaluation.model_validate(sent[-1][1])
    assert (evaluation.verdict, evaluation.candidate_id, evaluation.attempt) == (Verdict.PASSED, "9", 2)
    progress = [Progress.model_validate(message) for message in _answers(sent, RECORD_PROGRESS)]
    assert {item.subject for item in progress} == {"candidate:9"}
    reached = list(dict.fromkeys(item.stage for item in progress))
    assert reached == [None, Stage.LINT, Stage.LOAD, Stage.CORRECTNESS, Stage.COMPILE, Stage.ESTIMATE]


def test_a_screening_is_answered(sent: list[tuple[str, dict[str, Any]]]) -> None:
    tasks.screen_op.apply(args=(SCREEN,))
    assert sent[-1][0] == RECORD_SCREENING
    report = ScreeningReport.model_validate(sent[-1][1])
    assert (report.status, report.op_id) == (ScreenStatus.ACCEPTED, "5")
    assert _answers(sent, RECORD_PROGRESS)[0]["subject"] == "op:5"


def test_progress_is_sent_while_nothing_else_happens(
    sent: list[tuple[str, dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "PROGRESS_INTERVAL_S", 0.05)
    with reports.progress("candidate:1", 1, "here"):
        while len(_answers(sent, RECORD_PROGRESS)) < 4:
            pass
    assert {message["subject"] for message in _answers(sent, RECORD_PROGRESS)} == {"candidate:1"}


def test_a_worker_that_cannot_shut_user_code_in_blames_itself(
    sent: list[tuple[str, dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Runners:
        raise InfrastructureFault("no isolation here")

    monkeypatch.setattr(tasks, "Runners", refuse)
    tasks.evaluate_candidate.apply(args=(EVALUATE,))
    tasks.screen_op.apply(args=(SCREEN,))
    evaluation = Evaluation.model_validate(_answers(sent, RECORD_EVALUATION)[0])
    report = ScreeningReport.model_validate(_answers(sent, RECORD_SCREENING)[0])
    assert evaluation.verdict is Verdict.INFRASTRUCTURE
    assert "no isolation here" in evaluation.summary
    assert report.status is ScreenStatus.INFRASTRUCTURE


def test_a_message_of_another_version_is_answered_too(sent: list[tuple[str, dict[str, Any]]]) -> None:
    tasks.evaluate_candidate.apply(args=({"candidate_id": "9", "attempt": 3, "from_the_future": True},))
    evaluation = Evaluation.model_validate(_answers(sent, RECORD_EVALUATION)[0])
    assert (evaluation.verdict, evaluation.attempt) == (Verdict.INFRASTRUCTURE, 3)


def test_the_worker_reports_itself(sent: list[tuple[str, dict[str, Any]]]) -> None:
    reports.send_report(worker.describe_worker, "sandbox@here")
    report = WorkerReport.model_validate(_answers(sent, RECORD_WORKER)[0])
    assert report.queue == "sandbox.cpu"
    assert report.isolation_note
    assert report.versions["torch"]


@pytest.mark.parametrize("task", [tasks.evaluate_candidate, tasks.screen_op])
def test_work_that_kills_its_process_is_not_delivered_again(task: Task) -> None:  # type: ignore[type-arg]
    acknowledged, rejected = Mock(), Mock()
    message = Mock(headers={"id": "1", "task": task.name}, delivery_info={}, properties={}, payload=([{}], {}, {}))
    request = Request(message, app=app, task=task, on_ack=acknowledged, on_reject=rejected)
    request.time_start = 0.0
    try:
        raise WorkerLostError("signal 9 (SIGKILL)")
    except WorkerLostError:
        request.on_failure(ExceptionInfo())
    acknowledged.assert_called_once()
    rejected.assert_not_called()
