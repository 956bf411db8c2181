"""The judge's end of one forked process: its answers under deadlines, what it prints, and how it ended."""

import contextlib
import os
import selectors
import socket
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from services.sandbox.runner import wire
from services.sandbox.settings import SandboxSettings
from services.sandbox.zygote import CHUNK_BYTES, KILL_S, Ended, EndReason, Zygote

_DUMP_S = 1.0
_DUMP_END = b" in <module>\n"
"""Last line of faulthandler's traceback: the zygote's own outermost frame."""
_HANG_UP_S = 0.5


class ChildEnded(Exception):
    """The child ended before it answered."""

    def __init__(self, ended: Ended) -> None:
        super().__init__(f"the process ended: {ended}")
        self.ended = ended


class DeadlinePassed(Exception):
    """No answer within the deadline; the child is dead by now."""


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
            if not self._told_of_end(KILL_S):
                self._lose()
        self._drain()
        self._pipes.clear()
        self._open.close()
        self._zygote.child = None
        return self._ended or Ended(EndReason.LOST, 0)

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
        self._ended = Ended(EndReason.LOST, 0)

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
            data = self.channel.recv(CHUNK_BYTES)
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
            if not self._told_of_end(KILL_S):
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
            data = self._zygote.control.recv(CHUNK_BYTES)
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
                    data = os.read(pipe, CHUNK_BYTES)
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
