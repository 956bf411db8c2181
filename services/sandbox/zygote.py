"""The judge's end of a zygote: its start, its messages, its end."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from services.contracts import IsolationLevel, target_spec
from services.sandbox.isolation import RUNNER_FOLDER, Isolation, readable_folders, runner_path, scratch_folders, wrap
from services.sandbox.runner import wire
from services.sandbox.settings import SandboxSettings

if TYPE_CHECKING:
    from services.sandbox.child import Child

_BOOT = "import sys; sys.path.insert(0, {!r}); from runner.zygote import main; main()"
KILL_S = 2.0
"""How long a zygote may take to kill everything below it."""
_CONTROL_BYTES = 1 << 20
CHUNK_BYTES = 1 << 16


class ZygoteError(RuntimeError):
    """The zygote itself failed: ours, never the user's."""


class EndReason(StrEnum):
    """killed: by us. memory, processes: over the limit for its whole tree. lost: its zygote went with it."""

    EXITED = "exited"
    KILLED = "killed"
    MEMORY = "memory"
    PROCESSES = "processes"
    LOST = "lost"


@dataclass(frozen=True)
class Ended:
    """How a child ended; `code` is its exit code, or a signal's number negated."""

    reason: EndReason
    code: int


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
                data = self.control.recv(CHUNK_BYTES)
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
                return Ended(EndReason(message["ended"]), message["code"])
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
                self._process.wait(KILL_S)
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
            return scratch_folders()
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
            "counts_alone": counts_alone,
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


def _own_processes() -> int:
    """How many processes and threads this user has: RLIMIT_NPROC counts them all."""
    mine, count = os.getuid(), 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if entry.stat().st_uid == mine:
                    count += len(list((entry / "task").iterdir()))
    return count
