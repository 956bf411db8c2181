"""Every attack gets exactly its verdict, and the honest candidate after it is judged clean."""

from collections.abc import Iterator

import pytest

from services.contracts import EvaluateRequest, Evaluation, OpSpec, Verdict
from services.sandbox.judge.ladder import evaluate
from services.sandbox.runners import Runners
from services.sandbox.settings import SandboxSettings
from tests.redteam.attacks import ATTACKS, OP, Attack

HONEST = Attack("return honest(x)", Verdict.PASSED)
SETTINGS = SandboxSettings(call_s=8.0)


@pytest.fixture(scope="module")
def runners() -> Iterator[Runners]:
    with Runners(SETTINGS) as opened:
        yield opened


def _judge(attack: Attack, runners: Runners) -> Evaluation:
    op = OpSpec(op_id="relu_twice", name="relu_twice", source=OP)
    return evaluate(EvaluateRequest(candidate_id="1", op=op, source=attack.source), runners, settings=SETTINGS)


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_gets_its_verdict_and_leaves_nothing_behind(name: str, runners: Runners) -> None:
    attack = ATTACKS[name]
    evaluation = _judge(attack, runners)
    assert evaluation.verdict is attack.verdict, evaluation.feedback
    assert attack.said in evaluation.summary
    assert evaluation.feedback
    after = _judge(HONEST, runners)
    assert after.verdict is Verdict.PASSED, after.feedback
