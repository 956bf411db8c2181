"""The one Celery app: queues, routes and the names of the tasks that components send each other."""

import hashlib
import os
import tempfile
from pathlib import Path

from celery import Celery
from pydantic_settings import BaseSettings, SettingsConfigDict

SCREEN_OP = "sandbox.screen"
EVALUATE_CANDIDATE = "sandbox.evaluate"
PROPOSE = "inference.propose"

RECORD_SCREENING = "ops.record_screening"
RECORD_PROPOSALS = "runs.record_proposals"
RECORD_PROGRESS = "runs.record_progress"
RECORD_EVALUATION = "runs.record_evaluation"
RECORD_WORKER = "fleet.record_worker"

RUNS_QUEUE = "runs"
INFERENCE_QUEUE = "inference"
HOST_QUEUE = "sandbox.cpu"


class BrokerSettings(BaseSettings):
    """Where the broker is: any Redis-protocol or AMQP URL, or nothing for the local one."""

    model_config = SettingsConfigDict(extra="ignore")

    broker_url: str = ""
    """Empty: the Valkey that `manage.py up` starts on a socket in the state folder."""
    warpsmith_home: Path = Path(__file__).resolve().parent.parent / "var"
    visibility_timeout_s: int = 1800
    """Longest task; a message of a dead worker comes back after it."""

    @property
    def socket_path(self) -> Path:
        """Where the local broker listens; a path too long for a Unix socket (about 100 bytes) moves to /tmp."""
        path = self.warpsmith_home.resolve() / "broker" / "valkey.sock"
        if len(str(path)) <= 100:
            return path
        key = hashlib.sha256(str(path).encode()).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"warpsmith-{os.getuid()}-{key}" / "valkey.sock"

    @property
    def url(self) -> str:
        """The broker's URL."""
        return self.broker_url or f"redis+socket://{self.socket_path}"


def make_app(settings: BrokerSettings) -> Celery:
    """The Celery app. Services register their tasks on it by `include`; state lives in the web's database."""
    app = Celery("warpsmith", broker=settings.url)
    app.conf.update(
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        task_default_queue=RUNS_QUEUE,
        # Not task_queues: without it each queue gets an exchange of its own name, so nothing is delivered twice.
        task_create_missing_queues=True,
        task_routes={
            "inference.*": {"queue": INFERENCE_QUEUE},
            "sandbox.*": {"queue": HOST_QUEUE},
            "*": {"queue": RUNS_QUEUE},
        },
        # kombu sweeps for a dead worker's messages every interval x throttle seconds: 100 s unless set.
        broker_transport_options={
            "visibility_timeout": settings.visibility_timeout_s,
            "unacked_restore_interval": 10,
            "unacked_restore_throttle": 1,
        },
        broker_connection_retry_on_startup=True,
        worker_soft_shutdown_timeout=5.0,
        worker_hijack_root_logger=False,
        worker_send_task_events=False,
        timezone="UTC",
    )
    return app


def sandbox_queue(gpu: str | None) -> str:
    """The queue of workers that hold this kind of GPU; the host backend's for None."""
    return f"sandbox.{gpu.lower()}" if gpu else HOST_QUEUE


app = make_app(BrokerSettings())
