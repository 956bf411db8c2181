"""A small OpenAI-compatible server that replays scripted replies, for tests over real HTTP."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from typing import Any


@dataclass(frozen=True)
class Reply:
    """One reply. `cut` closes the connection in the middle of the body; `delay_s` waits before the first byte."""

    body: object = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    cut: bool = False

    @property
    def data(self) -> bytes:
        """The body as sent."""
        return self.body.encode() if isinstance(self.body, str) else json.dumps(self.body).encode()


def completion(*texts: str | None, finish_reason: str = "stop", **message: object) -> Reply:
    """A chat completion with one choice for each text."""
    choices = [
        {
            "index": index,
            "finish_reason": finish_reason,
            "message": {"role": "assistant", "content": text, **message},
        }
        for index, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": 100, "completion_tokens": 10 * len(texts), "total_tokens": 100 + 10 * len(texts)}
    envelope = {"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": "replayed"}
    return Reply({**envelope, "choices": choices, "usage": usage})


def error(status: int, message: str, headers: dict[str, str] | None = None, **fields: object) -> Reply:
    """An error as OpenAI and vLLM word it."""
    return Reply({"error": {"message": message, **fields}}, status, headers or {})


def model_list(*names: str, **fields: object) -> Reply:
    """The answer of /v1/models."""
    return Reply({"object": "list", "data": [{"id": name, "object": "model", **fields} for name in names]})


@dataclass
class ReplayServer:
    """Replies to POSTs in order, the last one for ever; every request is kept."""

    replies: list[Reply] = field(default_factory=list)
    models: Reply = field(default_factory=lambda: model_list("replayed"))
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    """Of each POST, names in lower case."""
    url: str = ""

    def next_reply(self) -> Reply:
        """The reply to the next POST."""
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


@contextmanager
def serve(server: ReplayServer, certificate: Path | None = None, port: int = 0) -> Iterator[ReplayServer]:
    """Serves on a loopback port (0: a free one) until the block ends; over TLS with a PEM of key and certificate."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(server.models)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            server.requests.append(json.loads(body))
            server.headers.append({name.lower(): value for name, value in self.headers.items()})
            self._send(server.next_reply())

        def _send(self, reply: Reply) -> None:
            time.sleep(reply.delay_s)
            self.send_response(reply.status)
            headers = {"Content-Type": "application/json", "Content-Length": str(len(reply.data)), **reply.headers}
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(ConnectionError):  # the client gave up waiting
                self.wfile.write(reply.data[: len(reply.data) // 2] if reply.cut else reply.data)
            self.close_connection = reply.cut

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    if certificate is not None:
        context = SSLContext(PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        http.socket = context.wrap_socket(http.socket, server_side=True)
    server.url = f"{'https' if certificate else 'http'}://127.0.0.1:{http.server_port}/v1"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join(timeout=5)
