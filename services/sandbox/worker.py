"""The sandbox worker: `celery -A services.broker worker -I services.sandbox.worker -Q sandbox.cpu -c 1`."""

from functools import cache

import torch

from services.broker import HOST_QUEUE
from services.contracts import Backend, IsolationLevel, WorkerReport
from services.reports import report_worker
from services.sandbox import tasks
from services.sandbox.isolation import IsolationRefused, probe
from services.sandbox.settings import SandboxSettings
from services.sandbox.versions import versions

__all__ = ["tasks"]


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
report_worker(describe_worker)
