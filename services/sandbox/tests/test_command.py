"""`python -m services.sandbox`, as a person calls it."""

import json
from pathlib import Path

import pytest

from services.contracts import Evaluation, ScreeningReport, ScreenStatus, Verdict
from services.sandbox.__main__ import main
from services.sandbox.judge.tests.sources import MATMUL, MATMUL_CANDIDATE, PLAIN_OP


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "op.py").write_text(MATMUL)
    (tmp_path / "good.py").write_text(MATMUL_CANDIDATE)
    (tmp_path / "wrong.py").write_text(MATMUL_CANDIDATE.replace("* scale)", "* scale + 1)"))
    (tmp_path / "constant.py").write_text(PLAIN_OP.replace("torch.sigmoid(x)", "torch.ones(4)"))
    return tmp_path


def _evaluate(files: Path, candidate: str, *options: str) -> int:
    return main(["evaluate", "--ref", str(files / "op.py"), "--cand", str(files / candidate), *options])


def test_a_right_candidate_gives_0_and_its_feedback(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _evaluate(files, "good.py", "--target", "a100") == 0
    said = capsys.readouterr()
    assert said.out.startswith("verdict: passed")
    assert "predicted for a100, not measured" in said.out
    assert "... correctness" in said.err


def test_a_wrong_candidate_gives_1_and_can_be_read_by_a_program(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _evaluate(files, "wrong.py", "--json") == 1
    evaluation = Evaluation.model_validate(json.loads(capsys.readouterr().out))
    assert evaluation.verdict is Verdict.WRONG_VALUES


def test_wrong_usage_gives_2(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _evaluate(files, "missing.py") == 2
    assert "missing.py" in capsys.readouterr().err
    assert _evaluate(files, "good.py", "--seed", "3") == 2
    with pytest.raises(SystemExit) as ended:
        _evaluate(files, "good.py", "--target", "z80")
    assert ended.value.code == 2


def test_screening_tells_and_gives_its_code(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["screen", str(files / "op.py")]) == 0
    said = capsys.readouterr().out
    assert said.startswith("accepted in")
    assert "wrong answer zeros: caught" in said
    assert main(["screen", str(files / "constant.py"), "--json"]) == 1
    report = ScreeningReport.model_validate(json.loads(capsys.readouterr().out))
    assert report.status is ScreenStatus.REFUSED


def test_the_doctor_finds_a_well_machine(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor"])
    said = capsys.readouterr().out
    assert "ok   judging a candidate: passed" in said
    assert code == (1 if "LACK" in said else 0)
