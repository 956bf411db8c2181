"""The LLM proposer against a real HTTP server that answers well, badly, slowly or not at all."""

import json
import logging
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from services.contracts import Attempt, OpSpec, ProposeOutcome, Proposer, ProposeRequest, Usage, Verdict
from services.inference.llm import propose_llm
from services.inference.settings import InferenceSettings
from services.inference.tests.replay import ReplayServer, Reply, completion, error, model_list, serve

KEY = "sk-secret-0123456789"
CODE = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n"
GOOD = f"Fused.\n```python\n{CODE}```"
OP = OpSpec(op_id="1", name="scale", source="import torch\nclass Model(torch.nn.Module): ...\n")


def request(samples: int = 1, turn_id: str = "turn-1", history: list[Attempt] | None = None) -> ProposeRequest:
    return ProposeRequest(
        turn_id=turn_id, attempt=2, proposer=Proposer.LLM, op=OP, samples=samples, history=history or []
    )


def settings(server: ReplayServer, **fields: object) -> InferenceSettings:
    values = {"base_url": server.url, "api_key": KEY, "retries": 0, "timeout_s": 20, **fields}
    return InferenceSettings.model_validate(values)


def test_it_proposes_the_code_with_everything_that_was_sent(server: ReplayServer) -> None:
    server.replies = [completion(GOOD)]
    result = propose_llm(request(), settings(server))
    assert result.outcome is ProposeOutcome.PROPOSED
    assert (result.turn_id, result.attempt, result.model) == ("turn-1", 2, "replayed")
    assert [proposal.source for proposal in result.proposals] == [CODE]
    assert result.proposals[0].answer == GOOD
    assert result.proposals[0].finish_reason == "stop"
    assert result.usage == Usage(prompt_tokens=100, completion_tokens=10)
    sent = server.requests[0]
    assert sent["messages"] == result.prompt
    assert {name: sent[name] for name in ("n", "seed", "temperature", "top_p", "max_tokens")} == {
        name: value for name, value in result.parameters.items() if name != "requests"
    }
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


def test_it_sends_no_authorization_without_a_key(server: ReplayServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-someone-else")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "sk-of-someone-else")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-someone-else")
    server.replies = [completion(GOOD)]
    assert propose_llm(request(), settings(server, api_key="")).outcome is ProposeOutcome.PROPOSED
    assert "someone-else" not in json.dumps(server.headers)
    assert "authorization" not in server.headers[0]


def test_a_local_server_is_asked_without_the_proxy(server: ReplayServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    server.replies = [completion(GOOD)]
    assert propose_llm(request(), settings(server)).outcome is ProposeOutcome.PROPOSED


def test_it_asks_for_all_samples_at_once(server: ReplayServer) -> None:
    server.replies = [completion(GOOD, "no code", GOOD)]
    result = propose_llm(request(samples=3), settings(server))
    assert [sent["n"] for sent in server.requests] == [3]
    assert [proposal.source for proposal in result.proposals] == [CODE, None, CODE]
    assert "holds no code block" in result.proposals[1].problem


def test_it_asks_again_where_n_is_ignored(server: ReplayServer) -> None:
    server.replies = [completion(GOOD)]
    result = propose_llm(request(samples=3), settings(server))
    assert len(result.proposals) == 3
    assert [sent["n"] for sent in server.requests] == [3, 2, 1]
    seeds = [sent["seed"] for sent in server.requests]
    assert seeds == [seeds[0], seeds[0] + 1, seeds[0] + 2]
    assert result.parameters["requests"] == 3
    assert result.usage.completion_tokens == 30


@pytest.mark.parametrize(
    "message", ["'n' : number must be at most 1", "n must be 1 when using greedy sampling, got 2."]
)
def test_it_asks_again_where_n_is_refused(server: ReplayServer, message: str) -> None:
    server.replies = [error(400, message, param=None), completion(GOOD)]
    result = propose_llm(request(samples=2), settings(server))
    assert len(result.proposals) == 2
    assert "n" not in result.parameters
    assert all("n" not in sent for sent in server.requests[1:])


def test_it_renames_max_tokens_for_servers_that_want_so(server: ReplayServer) -> None:
    message = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
    server.replies = [error(400, message, param="max_tokens", code="unsupported_parameter"), completion(GOOD)]
    result = propose_llm(request(), settings(server, max_tokens=4096))
    assert result.outcome is ProposeOutcome.PROPOSED
    assert server.requests[1]["max_completion_tokens"] == 4096
    assert "max_tokens" not in server.requests[1]


def test_it_keeps_the_answers_it_has_when_a_later_request_fails(server: ReplayServer) -> None:
    server.replies = [completion(GOOD), error(429, "slow down", {"Retry-After": "5"})]
    result = propose_llm(request(samples=3), settings(server))
    assert result.outcome is ProposeOutcome.PROPOSED
    assert len(result.proposals) == 1
    assert "takes no more requests" in result.reason


def test_seeds_differ_between_turns_and_not_between_deliveries(server: ReplayServer) -> None:
    server.replies = [completion(GOOD)]
    for turn_id in ("a", "a", "b"):
        propose_llm(request(turn_id=turn_id), settings(server))
    first, again, other = (sent["seed"] for sent in server.requests)
    assert first == again != other


def test_it_keeps_thinking_that_the_server_splits_off(server: ReplayServer) -> None:
    server.replies = [completion(GOOD, reasoning_content="memory bound")]
    proposal = propose_llm(request(), settings(server)).proposals[0]
    assert proposal.source == CODE
    assert "memory bound" in proposal.answer


def test_an_answer_of_thinking_alone_says_so(server: ReplayServer) -> None:
    server.replies = [completion(None, finish_reason="length", reasoning_content="hmm " * 50)]
    proposal = propose_llm(request(), settings(server)).proposals[0]
    assert proposal.source is None
    assert "token limit was reached while thinking" in proposal.problem


def test_it_takes_the_model_that_is_configured(server: ReplayServer) -> None:
    server.replies = [completion(GOOD)]
    server.models = Reply(status=404)
    assert propose_llm(request(), settings(server, model="mine")).model == "mine"
    assert server.requests[0]["model"] == "mine"


def test_it_fits_the_prompt_to_the_context_that_the_server_lists(server: ReplayServer) -> None:
    server.replies = [completion(GOOD)]
    server.models = model_list("small", max_model_len=8000)
    attempts = [
        Attempt(turn=turn, source=f"{CODE}\nx = {turn}\n" * 60, verdict=Verdict.PASSED, speedup=turn)
        for turn in range(1, 6)
    ]
    result = propose_llm(request(history=attempts), settings(server))
    assert server.requests[0]["max_tokens"] == 4000
    assert sum(len(message["content"]) for message in result.prompt) < 4000 * 3
    assert "left out" in str(result.parameters["prompt_cuts"])


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 9000 tokens. However, you requested 20000 tokens (11808 in the "
        "messages, 8192 in the completion). Please reduce the length of the messages or completion.",
        "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 9000 "
        "tokens and your request has 1522 input tokens (8192 > 9000 - 1522).",
        "request (11808 tokens) exceeds the available context size (9000 tokens), try increasing it",
    ],
)
def test_it_makes_the_prompt_smaller_where_the_context_is_exceeded(server: ReplayServer, message: str) -> None:
    server.replies = [error(400, message, type="BadRequestError"), completion(GOOD)]
    result = propose_llm(request(), settings(server))
    assert result.outcome is ProposeOutcome.PROPOSED
    assert server.requests[0]["max_tokens"] == 8192
    assert server.requests[1]["max_tokens"] == 4500


def test_a_context_that_is_always_too_short_ends_with_what_to_change(server: ReplayServer) -> None:
    server.replies = [error(400, "too long", code="context_length_exceeded")]
    result = propose_llm(request(), settings(server))
    assert result.outcome is ProposeOutcome.FAILED
    assert "INFERENCE_MAX_TOKENS" in result.reason
    assert 2 <= len(server.requests) <= 3


def test_an_op_that_does_not_fit_is_not_sent(server: ReplayServer) -> None:
    server.replies = [completion(GOOD)]
    large = request().model_copy(update={"op": OP.model_copy(update={"source": "x = 1\n" * 50_000})})
    result = propose_llm(large, settings(server))
    assert result.outcome is ProposeOutcome.NOTHING
    assert "Shorten the op's source" in result.reason
    assert not server.requests


WAITING = ProposeOutcome.WAITING
FAILED = ProposeOutcome.FAILED


@pytest.mark.parametrize(
    ("reply", "outcome", "retry_after_s", "words"),
    [
        (error(429, "slow", {"Retry-After": "42"}), WAITING, 42, "no more requests for now (429)"),
        (error(429, "slow", {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}), WAITING, 1, "(429)"),
        (error(429, "slow", {"Retry-After": "nan"}), WAITING, 30, "(429)"),
        (error(429, "slow"), WAITING, 30, "(429)"),
        (error(429, "no credit", code="insufficient_quota"), FAILED, None, "no credit left"),
        (error(500, "oops"), WAITING, 30, "fault of its own (HTTP 500)"),
        (error(503, "loading", {"Retry-After": "7"}), WAITING, 7, "(HTTP 503)"),
        (error(401, f"Incorrect API key provided: {KEY}"), FAILED, None, "correct INFERENCE_API_KEY"),
        (error(403, f"key {KEY} may not"), FAILED, None, "change INFERENCE_API_KEY or INFERENCE_MODEL"),
        (error(404, "The model `m` does not exist.", code=404), FAILED, None, "does not serve"),
        (error(400, "no such", code="model_not_found"), FAILED, None, "correct INFERENCE_MODEL"),
        (Reply({"detail": "Not Found"}, 404), FAILED, None, "usually ends with /v1"),
        (Reply("<html>nginx</html>", 404, {"Content-Type": "text/html"}), FAILED, None, "usually ends with /v1"),
        (Reply("<html>hello</html>", 200, {"Content-Type": "text/html"}), FAILED, None, "not in the OpenAI protocol"),
        (error(400, f"bad request with {KEY}"), FAILED, None, "refused the request (HTTP 400): bad request with ***"),
        (Reply('{"choices": [{"mess'), WAITING, 30, "not complete JSON"),
        (completion(), WAITING, 30, "without any choice"),
        (Reply({"choices": None}), WAITING, 30, "without any choice"),
        (Reply([1, 2]), FAILED, None, "not in the OpenAI protocol"),
        (Reply({"choices": "?" * 5000}, cut=True), WAITING, 20, "broke the connection off"),
    ],
)
def test_each_fault_has_its_outcome_and_one_sentence(
    server: ReplayServer,
    caplog: pytest.LogCaptureFixture,
    reply: Reply,
    outcome: ProposeOutcome,
    retry_after_s: float | None,
    words: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    server.replies = [reply]
    result = propose_llm(request(), settings(server))
    assert (result.outcome, result.retry_after_s) == (outcome, retry_after_s)
    assert words in result.reason
    assert "Traceback" not in result.reason
    assert KEY not in result.model_dump_json() + caplog.text


def test_a_broken_connection_is_tried_again(server: ReplayServer) -> None:
    server.replies = [error(500, "oops"), completion(GOOD)]
    assert propose_llm(request(), settings(server, retries=1)).outcome is ProposeOutcome.PROPOSED
    assert len(server.requests) == 2


def test_a_rate_limit_is_left_to_the_run(server: ReplayServer) -> None:
    server.replies = [error(429, "slow", {"Retry-After": "1"})]
    assert propose_llm(request(), settings(server, retries=3)).retry_after_s == 1
    assert len(server.requests) == 1


def test_a_slow_answer_is_waited_for_no_longer_than_set(server: ReplayServer) -> None:
    server.replies = [Reply(completion(GOOD).body, delay_s=1.5)]
    result = propose_llm(request(), settings(server, timeout_s=0.2))
    assert (result.outcome, result.retry_after_s) == (ProposeOutcome.WAITING, 30)
    assert "did not answer within 0.2 s" in result.reason
    assert "INFERENCE_TIMEOUT_S" in result.reason


def test_a_server_that_is_away_is_waited_for() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        away = ReplayServer(url=f"http://127.0.0.1:{free.getsockname()[1]}/v1")
    result = propose_llm(request(), settings(away))
    assert (result.outcome, result.retry_after_s) == (ProposeOutcome.WAITING, 20)
    assert "connection refused" in result.reason


def test_an_unknown_host_name_is_named() -> None:
    result = propose_llm(request(), settings(ReplayServer(url="http://model.invalid:8000/v1")))
    assert result.outcome is ProposeOutcome.WAITING
    assert "model.invalid:8000 has a name that is not known here" in result.reason


def test_tls_to_a_plain_server_says_http(server: ReplayServer) -> None:
    result = propose_llm(request(), settings(ReplayServer(url=server.url.replace("http:", "https:"))))
    assert result.outcome is ProposeOutcome.FAILED
    assert "http:// instead of https://" in result.reason


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_a_self_signed_certificate_needs_the_ca_file(tmp_path: Path) -> None:
    pem = tmp_path / "server.pem"
    ask = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test"
    files = ["-keyout", str(pem), "-out", str(tmp_path / "certificate.pem")]
    subprocess.run(
        [*ask.split(), "-addext", "subjectAltName=IP:127.0.0.1", *files],
        check=True,
        capture_output=True,
    )
    pem.write_text(pem.read_text() + (tmp_path / "certificate.pem").read_text())
    with serve(ReplayServer([completion(GOOD)]), certificate=pem) as server:
        refused = propose_llm(request(), settings(server))
        accepted = propose_llm(request(), settings(server, ca_file=tmp_path / "certificate.pem"))
    assert refused.outcome is ProposeOutcome.FAILED
    assert "certificate" in refused.reason
    assert "INFERENCE_CA_FILE" in refused.reason
    assert accepted.outcome is ProposeOutcome.PROPOSED


def test_a_ca_file_without_certificate_is_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    result = propose_llm(request(), settings(ReplayServer(url="https://127.0.0.1:1/v1"), ca_file=empty))
    assert result.outcome is ProposeOutcome.FAILED
    assert "INFERENCE_CA_FILE" in result.reason


def test_without_a_server_it_says_what_to_set() -> None:
    result = propose_llm(request(), InferenceSettings())
    assert result.outcome is ProposeOutcome.FAILED
    assert "set INFERENCE_BASE_URL" in result.reason


def test_a_server_without_models_says_so(server: ReplayServer) -> None:
    server.models = model_list()
    result = propose_llm(request(), settings(server))
    assert result.outcome is ProposeOutcome.FAILED
    assert "serves no model" in result.reason
