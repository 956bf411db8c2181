"""The Celery tasks of the sandbox queue: one request in, one verdict out. Every message gets an answer."""

import logging
import threading
from typing import Any

from billiard.einfo import ExceptionInfo
from celery import Task
from celery.signals import worker_process_init, worker_process_shutdown

from services.broker import (
    EVALUATE_CANDIDATE,
    RECORD_EVALUATION,
    RECORD_SCREENING,
    SCREEN_OP,
    app,
)
from services.contracts import (
    EvaluateRequest,
    Evaluation,
    ScreeningReport,
    ScreenRequest,
    ScreenStatus,
    Verdict,
)
from services.reports import progress
from services.sandbox.judge.ladder import evaluate, failed_evaluation
from services.sandbox.judge.screening import failed_screening, screen
from services.sandbox.replies import storable
from services.sandbox.runners import InfrastructureFault, Runners
from services.sandbox.settings import SandboxSettings

log = logging.getLogger(__name__)

_SETTINGS = SandboxSettings()
_HARD_LIMIT_MARGIN_S = 30
# A message whose process died (reject_on_worker_lost=False below) is not delivered again, as the same work would kill
# the next process too, without end: its lease runs out, and the web sends it again a bounded number of times.


class _Workshop:
    """The Runners of this process, warm before its first task and renewed after a failure of ours."""

    def __init__(self) -> None:
        self._runners: Runners | None = None
        self._lock = threading.Lock()

    def runners(self) -> Runners:
        with self._lock:
            if self._runners is None:
                self._runners = Runners(_SETTINGS)
                self._runners.warm()
            return self._runners

    def warm(self) -> None:
        try:
            self.runners()
        except InfrastructureFault:
            log.exception("the runners are not warm; each task says so")

    def close(self) -> None:
        with self._lock:
            if self._runners is not None:
                self._runners.close()
                self._runners = None


_workshop = _Workshop()


class SandboxTask(Task):  # type: ignore[type-arg]
    """Answers also where the task itself could not: a hard time limit kills its process."""

    def on_failure(
        self, exc: Exception, task_id: str, args: tuple[Any, ...], kwargs: dict[str, Any], einfo: ExceptionInfo
    ) -> None:
        """Tells the web that this was ours. After a hard limit this runs in the worker's main process."""
        log.error("task %s failed: %r", self.name, exc)
        _answer_failure(self.name, args[0], f"the worker gave no answer: {type(exc).__name__}: {exc}")


@app.task(
    name=EVALUATE_CANDIDATE,
    base=SandboxTask,
    bind=True,
    reject_on_worker_lost=False,
    soft_time_limit=_SETTINGS.task_s,
    time_limit=_SETTINGS.task_s + _HARD_LIMIT_MARGIN_S,
)
def evaluate_candidate(self: SandboxTask, message: dict[str, Any]) -> None:
    """Judges one candidate."""
    request = EvaluateRequest.model_validate(message)
    worker = str(self.request.hostname or "")
    with progress(f"candidate:{request.candidate_id}", request.attempt, worker) as report:
        try:
            evaluation = evaluate(request, _workshop.runners(), report, _SETTINGS)
        except InfrastructureFault as fault:
            evaluation = failed_evaluation(request.candidate_id, request.attempt, request.target, str(fault))
    if evaluation.verdict is Verdict.INFRASTRUCTURE:
        log.error("candidate %s: %s", request.candidate_id, evaluation.summary)
        _workshop.close()
    _answer_evaluation(evaluation.model_copy(update={"worker": worker}))


@app.task(
    name=SCREEN_OP,
    base=SandboxTask,
    bind=True,
    reject_on_worker_lost=False,
    soft_time_limit=_SETTINGS.task_s,
    time_limit=_SETTINGS.task_s + _HARD_LIMIT_MARGIN_S,
)
def screen_op(self: SandboxTask, message: dict[str, Any]) -> None:
    """Screens one op."""
    request = ScreenRequest.model_validate(message)
    worker = str(self.request.hostname or "")
    with progress(f"op:{request.op.op_id}", 1, worker) as report:
        try:
            screening = screen(request, _workshop.runners(), report, _SETTINGS)
        except InfrastructureFault as fault:
            screening = failed_screening(request.op.op_id, request.target, str(fault))
    if screening.status is ScreenStatus.INFRASTRUCTURE:
        log.error("op %s: %s", request.op.op_id, screening.findings[-1].detail)
        _workshop.close()
    _answer_screening(screening.model_copy(update={"worker": worker}))


@worker_process_init.connect
def warm_runners(**_: Any) -> None:
    """Start the zygotes before the first task asks; on a thread, as the pool kills a process not up within 4 s."""
    threading.Thread(target=_workshop.warm, name="warm-runners", daemon=True).start()


@worker_process_shutdown.connect
def close_runners(**_: Any) -> None:
    """Leaves no process behind when the pool's process ends."""
    _workshop.close()


def _answer_evaluation(evaluation: Evaluation) -> None:
    app.send_task(RECORD_EVALUATION, args=[_storable(evaluation.model_dump(mode="json"))])


def _answer_screening(report: ScreeningReport) -> None:
    app.send_task(RECORD_SCREENING, args=[_storable(report.model_dump(mode="json"))])


def _storable(value: Any) -> Any:
    """JSON without the NULs and lone surrogates that user code can put into any text and PostgreSQL refuses."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, list):
        return [_storable(item) for item in value]
    if isinstance(value, dict):
        return {storable(key): _storable(item) for key, item in value.items()}
    return value


def _answer_failure(task: str, message: dict[str, Any], reason: str) -> None:
    """An infrastructure answer, also to a message of another version of the web."""
    target = str(message.get("target", "unknown"))
    if task == EVALUATE_CANDIDATE:
        candidate_id, attempt = str(message.get("candidate_id", "")), int(message.get("attempt", 1))
        _answer_evaluation(failed_evaluation(candidate_id, attempt, target, reason))
    else:
        _answer_screening(failed_screening(str(message.get("op", {}).get("op_id", "")), target, reason))
