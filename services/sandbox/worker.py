"""The sandbox worker: `celery -A services.broker worker -I services.sandbox.worker -Q sandbox.cpu -c 1`."""

import logging
from functools import cache
from typing import Any

import torch
from celery import bootsteps
from celery.worker.consumer import Consumer

from services.broker import HOST_QUEUE, RECORD_WORKER, app
from services.contracts import Backend, IsolationLevel, WorkerReport
from services.sandbox import tasks
from services.sandbox.isolation import IsolationRefused, probe
from services.sandbox.settings import SandboxSettings
from services.sandbox.versions import versions

__all__ = ["ReportStep", "tasks"]

log = logging.getLogger(__name__)

REPORT_INTERVAL_S = 30.0


class ReportStep(bootsteps.StartStopStep):
    """Reports this worker at each connection to the broker and every 30 s after.

    On the worker's own timer, not on a thread: the pool forks from this process.
    """

    def __init__(self, consumer: Consumer, **kwargs: Any) -> None:
        self.entry: Any = None
        super().__init__(consumer, **kwargs)

    def start(self, consumer: Consumer) -> None:
        """Begins to report."""
        send_report(consumer.hostname)
        self.entry = consumer.timer.call_repeatedly(REPORT_INTERVAL_S, send_report, (consumer.hostname,))

    def stop(self, consumer: Consumer) -> None:
        """Ends with the connection."""
        if self.entry is not None:
            self.entry.cancel()


def send_report(hostname: str) -> None:
    """Tells the web that this worker is there; a broker that is away is logged, the next report follows."""
    try:
        app.send_task(RECORD_WORKER, args=[describe_worker(hostname).model_dump(mode="json")])
    except Exception:
        log.exception("the worker's report could not be sent")


def describe_worker(hostname: str) -> WorkerReport:
    """What this worker serves and how it shuts candidates in."""
    level, isolation_note = _isolation()
    return WorkerReport(
        name=hostname,
        queue=HOST_QUEUE,
        backend=Backend.HOST,
        isolation=level,
        isolation_note=isolation_note,
        versions=versions(),
        note="" if level else "Every task is refused here, because user code cannot be shut in.",
    )


@cache
def _isolation() -> tuple[IsolationLevel | None, str]:
    """Found once: the level and why it is not more; no level where user code cannot be shut in."""
    try:
        isolation = probe(SandboxSettings())
    except IsolationRefused as refused:
        return None, str(refused)
    return isolation.level, isolation.note


torch.set_num_threads(1)  # one task at a time, and its runners beside it: more threads only wait for each other
app.steps["consumer"].add(ReportStep)
