"""Frames between judge, zygote and child: a 4-byte big-endian length, then UTF-8 JSON. Descriptors ride beside."""

import array
import json
import socket
import struct
from typing import Any

FDS_PER_FRAME = 64
"""Most descriptors sent with one frame; the kernel's own limit is 253."""
_HEADER = struct.Struct(">I")


class ProtocolError(Exception):
    """Bytes that are no frame, or a frame over the limit."""


class Decoder:
    """Collects bytes into messages of at most `limit` bytes each."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The messages that are complete with these bytes. ProtocolError on anything else."""
        self._bytes += data
        messages = []
        while len(self._bytes) >= _HEADER.size:
            (size,) = _HEADER.unpack_from(self._bytes)
            if size > self._limit:
                raise ProtocolError(f"a message of {size} bytes, at most {self._limit} are allowed")
            end = _HEADER.size + size
            if len(self._bytes) < end:
                break
            messages.append(_decode(bytes(self._bytes[_HEADER.size : end])))
            del self._bytes[:end]
        return messages


def encode(message: dict[str, Any]) -> bytes:
    """One frame."""
    body = json.dumps(message, separators=(",", ":")).encode()
    return _HEADER.pack(len(body)) + body


def send(channel: socket.socket, message: dict[str, Any], fds: list[int] | None = None) -> None:
    """Send one frame, blocking; the descriptors go with its first byte."""
    frame = encode(message)
    sent = channel.sendmsg([frame], _rights(fds)) if fds else 0
    channel.sendall(memoryview(frame)[sent:])


def receive(channel: socket.socket, limit: int) -> tuple[dict[str, Any], list[int]]:
    """Receive exactly one frame and its descriptors, blocking. EOFError at the end."""
    fds: list[int] = []
    header = _exactly(channel, _HEADER.size, fds)
    (size,) = _HEADER.unpack(header)
    if size > limit:
        raise ProtocolError(f"a message of {size} bytes, at most {limit} are allowed")
    return _decode(_exactly(channel, size, fds)), fds


def _exactly(channel: socket.socket, size: int, fds: list[int]) -> bytes:
    data = bytearray()
    while len(data) < size:
        space = socket.CMSG_SPACE(FDS_PER_FRAME * 4)
        chunk, ancillary, _, _ = channel.recvmsg(size - len(data), space, socket.MSG_CMSG_CLOEXEC)
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds += array.array("i", payload[: len(payload) // 4 * 4]).tolist()
        if not chunk:
            raise EOFError("the other end is closed")
        data += chunk
    return bytes(data)


def _rights(fds: list[int]) -> list[tuple[int, int, bytes]]:
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds).tobytes())]


def _decode(body: bytes) -> dict[str, Any]:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not JSON: {error}") from None
    if not isinstance(message, dict):
        raise ProtocolError("not a JSON object")
    return message
