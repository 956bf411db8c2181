"""What a service's worker tells the web of itself and of the work in its hands."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from celery import bootsteps
from celery.worker.consumer import Consumer

from services.broker import RECORD_PROGRESS, RECORD_WORKER, app
from services.contracts import Message, Progress, Stage, WorkerReport

log = logging.getLogger(__name__)

WORKER_INTERVAL_S = 30.0
PROGRESS_INTERVAL_S = 10.0


def report_worker(describe: Callable[[str], WorkerReport]) -> None:
    """Have this process's worker report itself at each connection to the broker and every 30 s after.

    On the worker's own timer, not on a thread: the pool forks from this process.
    """

    class ReportStep(bootsteps.StartStopStep):
        def __init__(self, consumer: Consumer, **kwargs: Any) -> None:
            self.entry: Any = None
            super().__init__(consumer, **kwargs)

        def start(self, consumer: Consumer) -> None:
            send_report(describe, consumer.hostname)
            self.entry = consumer.timer.call_repeatedly(WORKER_INTERVAL_S, send_report, (describe, consumer.hostname))

        def stop(self, consumer: Consumer) -> None:
            if self.entry is not None:
                self.entry.cancel()

    app.steps["consumer"].add(ReportStep)


def send_report(describe: Callable[[str], WorkerReport], hostname: str) -> None:
    """Tell the web that this worker is there."""
    _send(RECORD_WORKER, describe(hostname))


@contextmanager
def progress(subject: str, attempt: int, worker: str) -> Iterator[Callable[[Stage], None]]:
    """Send Progress at once, at each stage that the yielded function is told, and every 10 s while the block runs."""
    done, stages = threading.Event(), list[Stage]()

    def send() -> None:
        stage = stages[-1] if stages else None
        _send(RECORD_PROGRESS, Progress(subject=subject, attempt=attempt, stage=stage, worker=worker))

    def repeat() -> None:
        while not done.wait(PROGRESS_INTERVAL_S):
            send()

    def reached(stage: Stage) -> None:
        stages.append(stage)
        send()

    send()
    thread = threading.Thread(target=repeat, name="progress", daemon=True)
    thread.start()
    try:
        yield reached
    finally:
        done.set()
        thread.join(timeout=PROGRESS_INTERVAL_S)


def _send(task: str, message: Message) -> None:
    """A broker that is away is logged: the next report follows, and a lease that runs out starts the work again."""
    try:
        app.send_task(task, args=[message.model_dump(mode="json")])
    except Exception:
        log.exception("%s could not be sent", task)
