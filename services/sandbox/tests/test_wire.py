"""Frames: cut anywhere, too long, and not JSON."""

import os
import socket
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.sandbox.runner import wire

messages = st.lists(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=20) | st.none()), max_size=4)


@settings(max_examples=50, deadline=None)
@given(messages, st.integers(1, 40))
def test_messages_survive_any_cut(sent: list[dict[str, object]], step: int) -> None:
    stream = b"".join(wire.encode(message) for message in sent)
    decoder = wire.Decoder(1 << 20)
    got = [message for at in range(0, len(stream), step) for message in decoder.feed(stream[at : at + step])]
    assert got == sent


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=64))
def test_garbage_is_a_protocol_error_or_incomplete(data: bytes) -> None:
    try:
        assert all(isinstance(message, dict) for message in wire.Decoder(1 << 10).feed(data))
    except wire.ProtocolError:
        return


@pytest.mark.parametrize("body", [b"[1]", b"{", b"\xff", b"[" * 5000])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(wire.ProtocolError):
        wire.Decoder(1 << 20).feed(struct.pack(">I", len(body)) + body)


def test_a_long_message_is_refused_at_its_header() -> None:
    with pytest.raises(wire.ProtocolError, match="at most 100"):
        wire.Decoder(100).feed(struct.pack(">I", 101))


def test_descriptors_ride_beside_a_message_larger_than_the_socket_buffer() -> None:
    left, right = socket.socketpair()
    with left, right:
        fds = [os.open("/dev/null", os.O_RDONLY) for _ in range(wire.FDS_PER_FRAME)]
        pid = os.fork()
        if pid == 0:
            wire.send(left, {"text": "x" * 2_000_000}, fds)
            os._exit(0)
        message, received = wire.receive(right, 1 << 22)
        os.waitpid(pid, 0)
        assert len(message["text"]) == 2_000_000
        assert len(received) == wire.FDS_PER_FRAME
        for fd in [*fds, *received]:
            os.close(fd)
