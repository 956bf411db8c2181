"""Turns of a language model on the whole stack: feedback, nonsense, a refused key, and a server that is away."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from services.inference.tests.replay import ReplayServer, Reply, completion, error, model_list, serve
from tests.e2e.conftest import sign_in
from tests.stack import PASSWORD, USERNAME, Stack, free_port, running

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("model_turns"),
]

MODEL = "replayed-coder"
OP = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.relu(x * y + 1.0) - x


def get_inputs():
    return [torch.randn(64, 96), torch.randn(64, 96)]


def get_init_inputs():
    return []
"""
KERNEL = """import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def multiply_relu_kernel(x_ptr, y_ptr, out_ptr, numel, BLOCK: tl.constexpr):
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offset < numel
    x = tl.load(x_ptr + offset, mask=mask)
    y = tl.load(y_ptr + offset, mask=mask)
    tl.store(out_ptr + offset, tl.maximum(x * y + 1.0, 0.0) - x, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 1024),)
        multiply_relu_kernel[grid](x, y, out, x.numel(), BLOCK=1024)
        return out
"""
WRONG = KERNEL.replace("x * y + 1.0", "x * y + 2.0")
NONSENSE = "I am sorry, but a banana is faster than any kernel."

UPLOAD = f"""
from webapp.accounts.models import User
from webapp.accounts.services import ensure_team
from webapp.ops.services import create_op
user = User.objects.get(username={USERNAME!r})
print(create_op(ensure_team(user), user, "multiply relu", {OP!r}, target="h200").pk)
"""
OP_STATE = "SELECT state FROM ops_op WHERE id = ?"
REPORTED_MODEL = "SELECT 1 FROM fleet_worker WHERE model = ?"


class Endpoint:
    """The model's server, at one address for the whole module: present only inside `answering`."""

    def __init__(self) -> None:
        self.port = free_port()

    def answering(self, *replies: Reply) -> "contextlib.AbstractContextManager[ReplayServer]":
        """The server with these replies."""
        return serve(ReplayServer(list(replies), models=model_list(MODEL)), port=self.port)


@pytest.fixture(scope="module")
def endpoint() -> Endpoint:
    return Endpoint()


@pytest.fixture(scope="module")
def stack(endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    home: Path = tmp_path_factory.mktemp("model") / "home"
    environment = {
        "INFERENCE_BASE_URL": f"http://127.0.0.1:{endpoint.port}",
        "INFERENCE_MODEL": MODEL,
        "INFERENCE_RETRIES": "0",
        "RECOVER_EVERY_S": "1",
    }
    with running(home, **environment) as started:
        started.wait_for(lambda: started.rows(REPORTED_MODEL, MODEL), 30, "the model's name")
        yield started


@pytest.fixture(scope="module")
def op(stack: Stack) -> int:
    pk = int(stack.shell(UPLOAD))
    stack.wait_for(lambda: stack.rows(OP_STATE, pk)[0][0] not in {"queued", "screening"}, 120, "the screening")
    assert stack.rows(OP_STATE, pk) == [("ready",)]
    return pk


@pytest.fixture
def signed_in(stack: Stack, page: Page) -> Page:
    sign_in(page, stack.url, USERNAME, PASSWORD)
    return page


def start(page: Page, stack: Stack, op: int, strategy: str, turns: int) -> None:
    """Start a run by the op's form, as a person does."""
    page.goto(f"{stack.url}/ops/{op}/")
    expect(page.get_by_text(f"Model: {MODEL}")).to_be_visible()
    page.get_by_label("Strategy").select_option(label=strategy)
    page.get_by_label("Turns").fill(str(turns))
    page.get_by_role("button", name="Optimise").click()
    page.wait_for_url("**/runs/*/")


def ended(page: Page, state: str) -> None:
    """Wait until the live page says that the run is over."""
    expect(page.get_by_role("status").filter(has_text=f": {state}")).to_be_attached(timeout=60_000)


def test_a_run_waits_for_a_model_that_is_away(stack: Stack, endpoint: Endpoint, op: int, signed_in: Page) -> None:
    start(signed_in, stack, op, "Model only", 1)
    waiting = signed_in.locator(".callout").filter(has_text="Waiting for the model")
    expect(waiting).to_contain_text(f"127.0.0.1:{endpoint.port}", timeout=20_000)
    with endpoint.answering(completion(f"```python\n{KERNEL}```")):
        ended(signed_in, "Passed")
    expect(waiting).to_have_count(0)
    expect(signed_in.locator("#result")).to_contain_text("predicted")


def test_each_turn_reads_the_feedback_on_the_last(stack: Stack, endpoint: Endpoint, op: int, signed_in: Page) -> None:
    page = signed_in
    answers = [f"```python\n{WRONG}```", NONSENSE, f"Now it is right.\n```python\n{KERNEL}```"]
    with endpoint.answering(*map(completion, answers)) as server:
        start(page, stack, op, "Compiler seed, then model", 4)
        ended(page, "Passed")
    asked = ["\n".join(message["content"] for message in request["messages"]) for request in server.requests]
    assert len(asked) == 3
    assert OP.strip() in asked[0]
    assert "wrong values" not in asked[0]
    assert "x * y + 2.0" in asked[1]
    assert "wrong values" in asked[1].lower().replace("_", " ")
    assert "holds no code block" in asked[2]

    result = page.locator("#result")
    expect(result).to_contain_text("model turn 1 wrong values, model turn 2 no candidate, model turn 3")
    expect(page.locator("#turn-1")).to_contain_text("wrong values")
    expect(page.locator("#turn-2")).to_contain_text("The answer holds no code block")
    page.locator("#turn-1").get_by_role("link", name="Code and evidence").click()
    expect(page.locator("#prompt")).to_contain_text("x * y + 2.0")
    page.locator("#prompt summary").filter(has_text="user").first.click()
    expect(page.locator("#prompt")).to_contain_text("torch.relu(x * y + 1.0) - x")


def test_a_refused_key_is_said_where_the_run_is_seen(
    stack: Stack, endpoint: Endpoint, op: int, signed_in: Page
) -> None:
    with endpoint.answering(error(401, "no such key")):
        start(signed_in, stack, op, "Compiler seed, then model", 3)
        ended(signed_in, "Passed")
        expect(signed_in.locator("#turn-1")).to_contain_text("wants an API key: set INFERENCE_API_KEY")
        start(signed_in, stack, op, "Model only", 3)
        ended(signed_in, "Errored")
    said = signed_in.locator(".callout").filter(has_text="INFERENCE_API_KEY")
    expect(said).to_contain_text(f"127.0.0.1:{endpoint.port} wants an API key: set INFERENCE_API_KEY")
    expect(said).to_contain_text("Not the kernel's fault")
