"""The command line: what it prints and how it ends."""

import json
from pathlib import Path

import pytest

from services.contracts import OpSpec, Proposer, ProposeRequest
from services.inference.__main__ import main
from services.inference.tests.replay import ReplayServer, completion, error, model_list

REQUEST = ProposeRequest(
    turn_id="7", proposer=Proposer.SEED, op=OpSpec(op_id="1", name="scale", source="class Model: ...")
)
GOOD = "```python\nclass ModelNew:\n    pass\n```"


@pytest.fixture
def configured(server: ReplayServer, monkeypatch: pytest.MonkeyPatch) -> ReplayServer:
    monkeypatch.setenv("INFERENCE_BASE_URL", server.url)
    monkeypatch.setenv("INFERENCE_RETRIES", "0")
    return server


def test_it_proposes_from_a_file(configured: ReplayServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configured.replies = [completion(GOOD)]
    path = tmp_path / "request.json"
    path.write_text(REQUEST.model_dump_json())
    assert main(["propose", str(path), "--proposer", "llm"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["proposals"][0]["source"] == "class ModelNew:\n    pass\n"
    assert result["seconds"] > 0


def test_a_request_it_cannot_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "request.json"
    path.write_text('{"turn_id": "1", "proposer": "oracle"}')
    assert main(["propose", str(path)]) == 2
    assert "proposer: Input should be 'seed' or 'llm'" in capsys.readouterr().err
    assert main(["propose", str(tmp_path / "absent.json")]) == 2
    assert "absent.json cannot be read" in capsys.readouterr().err


def test_without_a_model_it_ends_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "request.json"
    path.write_text(REQUEST.model_dump_json())
    assert main(["propose", str(path), "--proposer", "llm"]) == 1
    assert "set INFERENCE_BASE_URL" in json.loads(capsys.readouterr().out)["reason"]


def test_the_doctor_names_the_models(configured: ReplayServer, capsys: pytest.CaptureFixture[str]) -> None:
    configured.models = model_list("coder-a", "coder-b")
    configured.replies = [completion("ok")]
    main(["doctor"])
    printed = capsys.readouterr().out
    assert "ok    models: coder-a, coder-b" in printed
    assert "ok    model: coder-a answered" in printed


def test_the_doctor_says_what_to_mend(configured: ReplayServer, capsys: pytest.CaptureFixture[str]) -> None:
    configured.replies = [error(401, "who are you?")]
    assert main(["doctor"]) == 1
    assert "MEND  model: The server at 127.0.0.1" in (printed := capsys.readouterr().out)
    assert "wants an API key: set INFERENCE_API_KEY." in printed


def test_the_doctor_is_content_without_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor"])
    assert "ok    model: none configured" in capsys.readouterr().out


def test_bad_settings_are_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("INFERENCE_TEMPERATURE", "hot")
    assert main(["doctor"]) == 2
    assert capsys.readouterr().err.startswith("INFERENCE_TEMPERATURE: ")
