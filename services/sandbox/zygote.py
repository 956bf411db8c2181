"""The judge's end of a zygote and of the child that it forked: start, deadlines, what came out, how it ended."""

import contextlib
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from services.contracts import IsolationLevel, target_spec
from services.sandbox.isolation import RUNNER_FOLDER, Isolation, readable_folders, runner_path, wrap
from services.sandbox.runner import wire
from services.sandbox.settings import SandboxSettings

_BOOT = "import sys; sys.path.insert(0, {!r}); from runner.zygote import main; main()"
_KILL_S = 2.0
_DUMP_S = 1.0
_DUMP_END = b" in <module>\n"
"""Last line of faulthandler's traceback: the zygote's own outermost frame."""
_HANG_UP_S = 0.5
_CONTROL_BYTES = 1 << 20
_CHUNK = 1 << 16


class ZygoteError(RuntimeError):
    """The zygote itself failed: ours, never the user's."""


@dataclass(frozen=True)
class Ended:
    """How a child ended. `reason` is "exited", "killed" (by us), "memory", "processes" or "lost" (with its zygote)."""

    reason: str
    code: int
    oom_kills: int | None


class ChildEnded(Exception):
    """The child ended before it answered."""

    def __init__(self, ended: Ended) -> None:
        super().__init__(f"the process ended: {ended}")
        self.ended = ended


class DeadlinePassed(Exception):
    """No answer within the deadline; the child is dead by now."""


class Slot:
    """A number that no other sandbox on this machine holds, for as long as this object lives.

    Held by the name of an abstract socket: the kernel gives it back whatever happens to this process.
    """

    def __init__(self) -> None:
        for number in range(1000):
            held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                held.bind(f"\0warpsmith-sandbox-slot-{number}")
            except OSError:
                held.close()
                continue
            self._held = held
            self.number = number
            return
        raise ZygoteError("a thousand sandboxes run on this machine already")

    def release(self) -> None:
        """Give the number back."""
        self._held.close()


class Zygote:
    """One zygote process. `start` returns at once; `wait_ready` waits for its imports."""

    def __init__(self, isolation: Isolation, settings: SandboxSettings, *, interpret: bool) -> None:
        self._isolation = isolation
        self._settings = settings
        self._interpret = interpret
        self._slot = Slot()
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._messages: deque[dict[str, Any]] = deque()
        self.child: Child | None = None
        self.versions: dict[str, str] = {}

    def start(self) -> None:
        """Start the process."""
        scratch = self._make_scratch()
        self.control, theirs = socket.socketpair()
        self._decoder = wire.Decoder(_CONTROL_BYTES)
        self._messages.clear()
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `stop`)
        program = [sys.executable, "-I", "-B", "-c", _BOOT.format(str(runner_path(self._isolation)))]
        with theirs:
            self._process = subprocess.Popen(
                wrap(self._isolation, self._settings, [*program, str(theirs.fileno())]),
                env=self._environment(scratch[0]),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(theirs.fileno(),),
                cwd="/",
                start_new_session=True,
            )
        wire.send(self.control, self._config(scratch))

    def wait_ready(self) -> None:
        """Wait for the imports. ZygoteError with the process's own words where they fail."""
        message = self.read(time.monotonic() + self._settings.start_s)
        if message is None or "ready" not in message:
            words = (message or {}).get("failed") or self._words() or "no answer in time"
            self.stop()
            raise ZygoteError(f"the sandbox's zygote did not start: {words}")
        self.versions = message["versions"]

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def read(self, deadline: float) -> dict[str, Any] | None:
        """The next control message; None at the end of the process or of the time."""
        while not self._messages:
            self.control.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                data = self.control.recv(_CHUNK)
            except TimeoutError:
                return None
            if not self.take(data):
                return None
        return self._messages.popleft()

    def take(self, data: bytes) -> bool:
        """Add bytes read from the control socket; False at its end."""
        self._messages.extend(self._decoder.feed(data))
        return bool(data)

    def ended(self) -> Ended | None:
        """What the zygote said of its child's end, if it did."""
        while self._messages:
            message = self._messages.popleft()
            if "ended" in message:
                return Ended(message["ended"], message["code"], message["oom_kills"])
            if "refused" in message:
                raise ZygoteError(f"no process could be forked: {message['refused']}")
        return None

    def stop(self) -> None:
        """Kill it and, with its namespace, everything below it."""
        if self._process is None:
            return
        self.control.close()
        if self._isolation.bwrap is None:
            # no namespace dies with it: let it end its descendants itself
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_KILL_S)
        self._process.kill()
        self._process.wait()
        self._process = None
        self._log.close()

    def close(self) -> None:
        """Stop and give back slot and scratch."""
        self.stop()
        self._slot.release()
        if self._scratch is not None:
            self._scratch.cleanup()

    def _make_scratch(self) -> list[str]:
        """Folders that a child may write; below the full level one of our own, else the namespace's."""
        if self._isolation.bwrap is not None:
            return ["/tmp", "/dev/shm"]  # noqa: S108 (inside the namespace)
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="sandbox-", ignore_cleanup_errors=True)
        folder = Path(self._scratch.name)
        if self._uid() is not None:
            os.chown(folder, self._uid() or 0, -1)
        return [str(folder)]

    def _uid(self) -> int | None:
        return self._settings.first_uid + self._slot.number if self._isolation.drops_root else None

    def _environment(self, scratch: str) -> dict[str, str]:
        """All that the process gets: nothing of the worker's own environment."""
        return {
            "PATH": "/usr/bin:/bin",
            "HOME": scratch,
            "TMPDIR": scratch,
            "USER": "sandbox",
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "TRITON_CACHE_DIR": f"{scratch}/triton",
            "TORCHINDUCTOR_CACHE_DIR": f"{scratch}/inductor",
            **({"TRITON_INTERPRET": "1"} if self._interpret else {}),
        }

    def _config(self, scratch: list[str]) -> dict[str, Any]:
        settings = self._settings
        counts_alone = self._uid() is not None or self._isolation.user_namespace
        return {
            "interpret": self._interpret,
            "warm_target": target_spec("h200").model_dump(),
            "scratch": scratch,
            "uid": self._uid(),
            "tree_processes": settings.processes,
            "landlock": self._landlock(scratch),
            "limits": {
                "memory_bytes": settings.memory_bytes,
                "cpu_s": settings.cpu_s,
                "processes": settings.processes + (0 if counts_alone else _own_processes()),
                "file_bytes": settings.file_bytes,
                "open_files": settings.open_files,
            },
        }

    def _landlock(self, scratch: list[str]) -> dict[str, list[str]] | None:
        if self._isolation.level is not IsolationLevel.REDUCED:
            return None
        system = ["/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/proc", "/dev/urandom", "/dev/zero"]
        own = [str(RUNNER_FOLDER), *map(str, readable_folders())]
        return {"readable": [*system, *own], "writable": [*scratch, "/dev/null"]}

    def _words(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-4000:].strip()


class Child:
    """One forked process: its socket, what it prints, where it crashed."""

    def __init__(self, zygote: Zygote, settings: SandboxSettings, request: dict[str, Any]) -> None:
        self._zygote = zygote
        self._settings = settings
        self._ended: Ended | None = None
        self._printed, self._faults = bytearray(), bytearray()
        self._decoder = wire.Decoder(settings.message_bytes)
        self._answers: deque[dict[str, Any]] = deque()
        with contextlib.ExitStack() as stack:
            self.channel, theirs = socket.socketpair()
            stack.callback(theirs.close)
            output_pipe, output = _pipe(stack)
            fault_pipe, faults = _pipe(stack)
            self._open = contextlib.ExitStack()
            self._open.callback(self.channel.close)
            for pipe in (output_pipe, fault_pipe):
                self._open.callback(os.close, pipe)
            self._pipes = {output_pipe: self._printed, fault_pipe: self._faults}
            wire.send(zygote.control, {"fork": request}, [theirs.fileno(), output, faults])
        zygote.child = self

    @property
    def printed(self) -> str:
        """The first bytes of stdout and stderr."""
        return self._printed.decode(errors="replace")

    @property
    def fault_text(self) -> str:
        """What faulthandler wrote at a crash or when asked."""
        return self._faults.decode(errors="replace")

    def send(self, message: dict[str, Any], fds: Sequence[int], deadline: float) -> None:
        """Send one request. DeadlinePassed where the child does not read it."""
        self.channel.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            wire.send(self.channel, message, list(fds))
        except TimeoutError:
            self._pass_deadline()
        except OSError:
            return  # it has ended: `receive` says how

    def receive(self, deadline: float) -> dict[str, Any]:
        """Its next answer. Raises DeadlinePassed, ChildEnded, or wire.ProtocolError."""
        while not self._answers:
            if self._ended is not None:
                raise ChildEnded(self._ended)
            if not self._wait(deadline):
                self._pass_deadline()
        return self._answers.popleft()

    def end(self) -> Ended:
        """Kill everything of it and say how it ended."""
        if self._ended is None:
            self._ask({"kill": True})
            if not self._told_of_end(_KILL_S):
                self._lose()
        self._drain()
        self._pipes.clear()
        self._open.close()
        self._zygote.child = None
        return self._ended or Ended("lost", 0, None)

    def _pass_deadline(self) -> None:
        """Ask where it is, then kill it."""
        self._ask({"dump": True})
        deadline = time.monotonic() + _DUMP_S
        while not self._faults.endswith(_DUMP_END) and self._ended is None and self._wait(deadline):
            pass
        self.end()
        raise DeadlinePassed

    def _lose(self) -> None:
        self._zygote.stop()
        self._ended = Ended("lost", 0, None)

    def _wait(self, deadline: float) -> bool:
        """Take what comes next from anywhere; False once the deadline has passed."""
        return self._wait_on([self.channel, self._zygote.control, *self._pipes], deadline)

    def _wait_on(self, sources: list[socket.socket | int], deadline: float) -> bool:
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        with selectors.DefaultSelector() as selector:
            for source in sources:
                selector.register(source, selectors.EVENT_READ)
            ready = [key.fileobj for key, _ in selector.select(left)]
        self._drain()
        if self.channel in ready:
            self._take_answers()
        if self._zygote.control in ready:
            self._take_control()
        return True

    def _take_answers(self) -> None:
        self.channel.setblocking(False)
        try:
            data = self.channel.recv(_CHUNK)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if data:
            self._answers.extend(self._decoder.feed(data))
            return
        # hung up: it is ending, or user code closed the socket and goes on
        if not self._told_of_end(_HANG_UP_S):
            self._ask({"kill": True})
            if not self._told_of_end(_KILL_S):
                self._lose()

    def _told_of_end(self, within_s: float) -> bool:
        deadline = time.monotonic() + within_s
        while self._ended is None and self._wait_on([self._zygote.control, *self._pipes], deadline):
            pass
        return self._ended is not None

    def _ask(self, request: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # where the zygote is gone, what waits for its answer says so
            wire.send(self._zygote.control, request)

    def _take_control(self) -> None:
        self._zygote.control.setblocking(False)
        try:
            data = self._zygote.control.recv(_CHUNK)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not self._zygote.take(data):
            self._lose()
            return
        self._ended = self._zygote.ended() or self._ended

    def _drain(self) -> None:
        """Empty both pipes; beyond the limit nothing is kept."""
        for pipe, kept in list(self._pipes.items()):
            for _ in range(64):  # someone who prints faster than we read must not hold us here
                try:
                    data = os.read(pipe, _CHUNK)
                except BlockingIOError:
                    break
                if not data:
                    del self._pipes[pipe]
                    break
                kept += data[: max(0, self._settings.output_bytes - len(kept))]


def _pipe(stack: contextlib.ExitStack) -> tuple[int, int]:
    """Our non-blocking reading end, and the writing end which closes with the stack."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(reading, False)
    stack.callback(os.close, writing)
    return reading, writing


def _own_processes() -> int:
    """How many processes and threads this user has: RLIMIT_NPROC counts them all."""
    mine, count = os.getuid(), 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if entry.stat().st_uid == mine:
                    count += len(list((entry / "task").iterdir()))
    return count
