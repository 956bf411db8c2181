"""The prompt: what it says, in which order, and how it is cut to the budget."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.contracts import TARGETS, Attempt, OpFacts, OpSpec, Proposer, ProposeRequest, TensorSpec, Verdict
from services.inference.llm.history import select_context
from services.inference.llm.prompt import PromptTooLongError, build_prompt, cut_middle, estimate_tokens

OP = OpSpec(op_id="1", name="row softmax", source="class Model:\n    '''Has a fence: ``` in it.'''\n")
FACTS = OpFacts(
    inputs=[
        TensorSpec(shape=[8, 16], stride=[16, 1], dtype="float32"),
        TensorSpec(shape=[16, 8], stride=[1, 16], dtype="float32"),
    ],
    scalars=["scale=0.125"],
    outputs=[TensorSpec(shape=[8, 16], stride=[16, 1], dtype="float32")],
    moved_bytes=1024,
    aten_ops={"aten.mul.Tensor": 2},
    floor_us=2.0,
    eager_us=9.5,
)


def request(*history: Attempt, target: str = "h200", op: OpSpec = OP) -> ProposeRequest:
    return ProposeRequest(turn_id="1", proposer=Proposer.LLM, op=op, facts=FACTS, target=target, history=list(history))


def attempt(
    turn: int, verdict: Verdict | None = Verdict.PASSED, speedup: float | None = None, text: str = ""
) -> Attempt:
    return Attempt(turn=turn, source=f"x = {turn}{text}", verdict=verdict, speedup=speedup, feedback=f"feedback {turn}")


def user_text(prompt_request: ProposeRequest, budget: int = 24_000) -> str:
    return build_prompt(prompt_request, budget).messages[1]["content"]


def test_it_names_the_op_its_facts_and_the_gpu() -> None:
    prompt = build_prompt(request(), 24_000)
    system, user = (message["content"] for message in prompt.messages)
    assert [message["role"] for message in prompt.messages] == ["system", "user"]
    assert "NVIDIA H200 SXM (Hopper, sm_90)" in system
    assert "4800" in system
    assert OP.source.strip() in user
    assert "float32[8, 16], float32[16, 8] with strides [1, 16], scale=0.125" in user
    assert "aten.mul.Tensor x2" in user
    assert "$" not in system
    assert prompt.cuts == []


def test_a_fence_in_the_source_does_not_end_its_block() -> None:
    assert f"````python\n{OP.source.strip()}\n````" in user_text(request())


@pytest.mark.parametrize("target", TARGETS)
def test_each_target_has_its_facts(target: str) -> None:
    assert TARGETS[target].title in build_prompt(request(target=target), 24_000).messages[0]["content"]


def test_what_comes_first_does_not_change_between_turns() -> None:
    first, later = (build_prompt(request(*history), 24_000) for history in ([], [attempt(1), attempt(2)]))
    assert first.messages[0] == later.messages[0]
    op_text = first.messages[1]["content"].split("# Your task")[0]
    assert later.messages[1]["content"].startswith(op_text)


def test_the_task_follows_from_the_latest_attempt() -> None:
    assert "Write `ModelNew`" in user_text(request())
    assert "The latest attempt failed" in user_text(request(attempt(1), attempt(2, Verdict.WRONG_VALUES)))
    assert "The latest attempt is correct" in user_text(request(attempt(1, Verdict.TIMEOUT), attempt(2)))


def test_predicted_is_not_called_measured() -> None:
    assert "passed, 1.50x as fast as eager (predicted)" in user_text(request(attempt(1, speedup=1.5)))
    measured = attempt(1, speedup=1.5).model_copy(update={"speedup_measured": True})
    assert "passed, 1.50x as fast as eager (measured)" in user_text(request(measured))


def test_an_answer_without_code_is_shown_by_its_feedback() -> None:
    nothing = Attempt(turn=1, source="", feedback="The answer holds no code block.")
    text = user_text(request(nothing))
    assert "no code could be read" in text
    assert "The answer holds no code block." in text


def test_it_keeps_the_four_best_and_the_latest() -> None:
    history = [attempt(turn, speedup=turn / 10) for turn in range(1, 8)] + [attempt(8, Verdict.COMPILE_ERROR)]
    context = select_context(history)
    assert [item.turn for item in context.best] == [7, 6, 5, 4]
    assert context.latest is not None
    assert context.latest.turn == 8


def test_a_correct_attempt_is_before_a_wrong_and_a_wrong_before_one_that_never_ran() -> None:
    verdicts = [Verdict.COMPILE_ERROR, Verdict.PASSED, Verdict.INFRASTRUCTURE, Verdict.WRONG_VALUES, None, None]
    context = select_context([attempt(turn, verdict) for turn, verdict in enumerate(verdicts)])
    assert [item.verdict for item in context.best] == [
        Verdict.PASSED,
        Verdict.WRONG_VALUES,
        Verdict.COMPILE_ERROR,
        None,
    ]


def test_programs_that_differ_only_in_layout_are_shown_once() -> None:
    source = "def f(x):\n    return x + 1\n"
    same = 'def f(x):\n    """Adds."""\n    return (x +\n            1)  # one\n'
    history = [
        Attempt(turn=1, source=source, verdict=Verdict.PASSED, speedup=2),
        Attempt(turn=2, source=same, verdict=Verdict.PASSED, speedup=2),
        attempt(3),
    ]
    assert [item.turn for item in select_context(history).best] == [2]


def test_what_does_not_fit_is_cut_with_a_mark() -> None:
    history = [attempt(turn, speedup=1.0, text=" + 1" * 900) for turn in range(1, 5)]
    history.append(Attempt(turn=5, source="y = 1", verdict=Verdict.COMPILE_ERROR, feedback="line 1 is wrong\n" * 2000))
    budget = 7000
    prompt = build_prompt(request(*history), budget)
    text = prompt.messages[1]["content"]
    assert prompt.tokens <= budget
    assert "characters left out ...]" in text
    assert "earlier attempts left out: the token budget is used up]" in text
    assert len(prompt.cuts) == 2


def test_an_op_larger_than_the_budget_is_refused_with_its_size() -> None:
    large = OP.model_copy(update={"source": "x = 1\n" * 10_000})
    with pytest.raises(PromptTooLongError, match=r"take about \d+ tokens, but the prompt may have only 8000"):
        build_prompt(request(op=large), 8000)


ATTEMPTS = st.builds(
    Attempt,
    turn=st.integers(0, 9),
    source=st.text(max_size=3000),
    verdict=st.sampled_from([None, *Verdict]),
    speedup=st.none() | st.floats(0.01, 100),
    feedback=st.text(max_size=3000),
)


@given(st.lists(ATTEMPTS, max_size=8), st.integers(3500, 12_000))
def test_the_budget_is_kept_whatever_the_history(history: list[Attempt], budget: int) -> None:
    assert build_prompt(request(*history), budget).tokens <= budget


@given(st.text(max_size=2000), st.integers(0, 400))
def test_cutting_keeps_to_its_limit_or_to_the_mark(text: str, tokens: int) -> None:
    cut = cut_middle(text, tokens)
    assert cut == text or estimate_tokens(cut) <= max(tokens, 20)


def test_the_example_of_the_rules_is_right(tmp_path: Path) -> None:
    """The example op and its answer agree in Triton's interpreter, on sizes that do not divide a block."""
    rules = build_prompt(request(), 24_000).messages[0]["content"]
    op, answer = re.findall(r"```python\n(.*?)```", rules, re.DOTALL)[-2:]
    (tmp_path / "op.py").write_text(op)
    (tmp_path / "answer.py").write_text(answer)
    check = """
import torch, op, answer
reference, new = op.Model(1000), answer.ModelNew(1000)
with torch.no_grad():
    reference.weight.uniform_(-2, 2)
    new.load_state_dict(reference.state_dict())
    inputs = [tensor[:3] for tensor in op.get_inputs()]
    torch.testing.assert_close(new(*inputs), reference(*inputs))
"""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", check], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
