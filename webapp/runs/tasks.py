"""Thin tasks of the web's own worker: each validates its message and calls one service."""

import logging
from typing import Any

from services import contracts
from services.broker import RECORD_EVALUATION, RECORD_PROGRESS, RECORD_PROPOSALS, app
from webapp.dispatch import ADVANCE_RUN
from webapp.received import received
from webapp.runs import services

log = logging.getLogger(__name__)


@app.task(name=ADVANCE_RUN)
def advance_run(run_id: int) -> None:
    """Take a run's next step."""
    services.advance(run_id)


@app.task(name=RECORD_PROPOSALS)
def record_proposals(result: dict[str, Any]) -> None:
    """Keep a turn's proposals."""
    services.record_proposals(received(contracts.ProposeResult, result))


@app.task(name=RECORD_PROGRESS)
def record_progress(progress: dict[str, Any]) -> None:
    """Renew a lease."""
    services.record_progress(received(contracts.Progress, progress))


@app.task(name=RECORD_EVALUATION)
def record_evaluation(report: dict[str, Any]) -> None:
    """Keep a verdict."""
    services.record_evaluation(received(contracts.Evaluation, report))


@app.task(name="runs.recover")
def recover() -> None:
    """Send lost work again."""
    if done := services.recover():
        log.warning("sent again after a lost lease: %s", dict(done))
