"""A whole Warpsmith on this machine for one test: its own state folder, its own port, real processes."""

import contextlib
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

REPOSITORY = Path(__file__).resolve().parent.parent
USERNAME, PASSWORD = "demo", "a-password-for-tests"
QUEUES = ("runs", "inference", "sandbox.cpu")


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Stack:
    """Starts and stops `manage.py up`, and reads its database."""

    home: Path
    port: int = field(default_factory=free_port)
    environment: dict[str, str] = field(default_factory=dict)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        """Where the web is."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        """What every process of this stack sees."""
        cleared = {"SECRET_KEY", "DATABASE_URL", "BROKER_URL", "DJANGO_SETTINGS_MODULE", "INFERENCE_BASE_URL"}
        kept = {name: value for name, value in os.environ.items() if name not in cleared}
        return {**kept, "WARPSMITH_HOME": str(self.home), "PYTHONDONTWRITEBYTECODE": "", **self.environment}

    def start(self) -> None:
        """Start all and wait for the workers. Raises AssertionError with the logs where it does not come up."""
        log = (self.home.parent / f"{self.home.name}-up.log").open("ab")
        before = time.time()
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "up", "--port", str(self.port)],
            cwd=REPOSITORY,
            env=self.env,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        self.wait_for(lambda: self._reported(before), 120, "the workers to report")

    def _reported(self, since: float) -> bool:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(since))
        rows = self.rows("SELECT DISTINCT queue FROM fleet_worker WHERE last_seen > ?", stamp)
        return {"inference", "sandbox.cpu"} <= {row[0] for row in rows}

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Rows of the stack's database; none while it is not made yet."""
        path = self.home / "warpsmith.sqlite3"
        if not path.exists():
            return []
        try:
            with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=20)) as connection:
                return connection.execute(query, values).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return []
            raise

    def wait_for(self, condition: Callable[[], Any], timeout_s: float, what: str, *, alive: bool = True) -> Any:
        """Poll until the condition holds; fails with the log's end."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if found := condition():
                return found
            if alive and self.process and self.process.poll() is not None:
                raise AssertionError(f"the stack ended while waiting for {what}:\n{self.log()}")
            time.sleep(0.1)
        raise AssertionError(f"waited {timeout_s:.0f} s for {what}:\n{self.log()}")

    def log(self) -> str:
        """The end of what `manage.py up` printed."""
        return (self.home.parent / f"{self.home.name}-up.log").read_text(errors="replace")[-6000:]

    def manage(self, *arguments: str, timeout_s: float = 120) -> "subprocess.CompletedProcess[str]":
        """Run one manage.py command beside the stack."""
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=REPOSITORY,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def shell(self, code: str) -> str:
        """What Python code prints in Django's shell."""
        done = self.manage("shell", "--no-imports", "-c", code)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def worker(self, queue: str) -> psutil.Process:
        """The main process of one worker, or of "broker", "web", "beat"."""
        marks = {"broker": "valkey-server", "web": "gunicorn", "beat": "beat"}
        assert self.process is not None
        children = psutil.Process(self.process.pid).children(recursive=True)
        wanted = [
            child
            for child in children
            if (marks[queue] in " ".join(child.cmdline()) if queue in marks else ["-Q", queue] == _queue(child))
        ]
        assert wanted, f"no process of {queue}: {[child.cmdline() for child in children]}"
        return min(wanted, key=lambda child: child.create_time())

    def wait_end(self, timeout_s: float = 40) -> int:
        """Wait until `manage.py up` has ended; gives its exit code."""
        assert self.process is not None
        return self.process.wait(timeout=timeout_s)

    def stop(self) -> None:
        """Ctrl-C, and no process left behind."""
        if self.process is None:
            return
        family = _family(self.process.pid)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()
        _, left = psutil.wait_procs(family, timeout=5)
        for process in left:
            process.kill()


def _queue(process: psutil.Process) -> list[str]:
    command = process.cmdline()
    return command[command.index("-Q") : command.index("-Q") + 2] if "-Q" in command else []


def _family(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


@contextlib.contextmanager
def running(home: Path, **environment: str) -> Iterator[Stack]:
    """A stack with the demo user, stopped at the end."""
    stack = Stack(home=home, environment=environment)
    stack.start()
    try:
        stack.shell(
            "from webapp.accounts.services import ensure_user_with_team\n"
            f"ensure_user_with_team({USERNAME!r}, {PASSWORD!r})"
        )
        yield stack
    finally:
        stack.stop()
