"""The Celery task of the inference queue: one ProposeRequest in, one ProposeResult out."""

import logging
from typing import Any

from billiard.einfo import ExceptionInfo
from celery import Task
from celery.exceptions import SoftTimeLimitExceeded, TimeLimitExceeded
from pydantic import ValidationError

from services.broker import PROPOSE, RECORD_PROPOSALS, app
from services.contracts import ProposeOutcome, ProposeRequest, ProposeResult
from services.inference.proposers import propose
from services.inference.settings import load_settings
from services.reports import progress

log = logging.getLogger(__name__)

SOFT_LIMIT_S = load_settings().turn_limit_s + 60
HARD_LIMIT_S = SOFT_LIMIT_S + 30


class ProposeTask(Task):  # type: ignore[type-arg]
    """Answers also where the task itself could not: a hard time limit kills its process."""

    def on_failure(
        self, exc: Exception, task_id: str, args: tuple[Any, ...], kwargs: dict[str, Any], einfo: ExceptionInfo
    ) -> None:
        """Tells the web why there is no proposal. After a hard limit this runs in the worker's main process."""
        log.error("the task of turn %s failed: %r", args[0].get("turn_id"), exc)
        if isinstance(exc, TimeLimitExceeded):
            reason = f"The proposer did not end within {exc.args[0]} s and was stopped."
        else:
            reason = f"The inference worker gave no answer: {type(exc).__name__}: {exc}"
        answer(_failure(args[0], reason))


@app.task(
    name=PROPOSE,
    base=ProposeTask,
    bind=True,
    # What kills its process would kill the next one too; the web sends it again, a bounded number of times.
    reject_on_worker_lost=False,
    soft_time_limit=SOFT_LIMIT_S,
    time_limit=HARD_LIMIT_S,
)
def propose_candidates(self: ProposeTask, message: dict[str, Any]) -> None:
    """Proposes candidates for one Turn; every message gets an answer that the web can record."""
    worker = str(self.request.hostname or "")
    answer(_proposals(message, worker).model_copy(update={"worker": worker}))


def answer(result: ProposeResult) -> None:
    """Sends the result to the web."""
    app.send_task(RECORD_PROPOSALS, args=[result.model_dump(mode="json")])


def _proposals(message: dict[str, Any], worker: str) -> ProposeResult:
    try:
        request = ProposeRequest.model_validate(message)
    except ValidationError as error:
        log.exception("an unreadable request: the web and this worker are of different versions")
        fields = ", ".join(".".join(map(str, item["loc"])) for item in error.errors())
        return _failure(message, f"The inference worker is of another version than the web ({fields}): restart it.")
    try:
        with progress(f"turn:{request.turn_id}", request.attempt, worker):
            return propose(request)
    except SoftTimeLimitExceeded:
        log.exception("turn %s took too long", request.turn_id)
        return _failure(message, f"The {request.proposer} proposer took longer than {SOFT_LIMIT_S} s.")
    except Exception as error:
        log.exception("turn %s failed", request.turn_id)
        return _failure(message, f"The {request.proposer} proposer failed: {type(error).__name__}: {error}"[:1000])


def _failure(message: dict[str, Any], reason: str) -> ProposeResult:
    return ProposeResult(
        turn_id=str(message.get("turn_id", "")),
        attempt=int(message.get("attempt", 1)),
        outcome=ProposeOutcome.FAILED,
        reason=reason,
    )
