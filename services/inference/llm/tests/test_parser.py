"""What is read from a model's answer, however it is written."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.inference.llm.parser import IMPORTS, parse_answer

KERNEL = """import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(x, y, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offsets, 2 * tl.load(x + offsets, mask=offsets < n), mask=offsets < n)
"""
MODEL = """

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        double_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
        return y
"""
CODE = KERNEL + MODEL


def fenced(code: str, language: str = "python") -> str:
    return f"```{language}\n{code}\n```"


@pytest.mark.parametrize("language", ["python", "py", "Python", "", "triton", "python3 title=model.py"])
def test_it_reads_a_block_whatever_its_language(language: str) -> None:
    proposal = parse_answer(f"Here it is:\n\n{fenced(CODE, language)}\n\nIt is fast.")
    assert proposal.source == CODE
    assert proposal.title == "model's answer: 1 Triton kernel (double_kernel)"


def test_it_takes_the_last_block_that_defines_model_new() -> None:
    newer = CODE.replace("256", "512")
    answer = f"{fenced(CODE)}\nBetter:\n{fenced(newer)}\nUse it so:\n{fenced('ModelNew()(x)')}"
    assert parse_answer(answer).source == newer


def test_it_joins_a_kernel_that_stands_in_a_block_of_its_own() -> None:
    answer = f"{fenced('pip install triton', 'bash')}\nKernel:\n{fenced(KERNEL)}\nModel:\n{fenced(MODEL)}"
    source = parse_answer(answer).source or ""
    assert source.index("def double_kernel") < source.index("class ModelNew")
    assert "pip install" not in source


def test_it_leaves_out_a_block_that_is_not_needed() -> None:
    answer = f"The original was\n{fenced('class Model: pass')}\nNow:\n{fenced(CODE)}"
    assert parse_answer(answer).source == CODE


@pytest.mark.parametrize(
    "answer",
    [
        f"<think>First ```python\nclass ModelNew: draft\n``` no.</think>\n{fenced(CODE)}",
        f"The template ate the start tag {fenced('class ModelNew: pass')}</think>{fenced(CODE)}",
        f"{fenced(CODE)}\n<thinking>is {fenced('class ModelNew: pass')} better?",
    ],
)
def test_it_ignores_thinking(answer: str) -> None:
    assert parse_answer(answer).source == CODE


def test_it_reads_code_without_a_fence_between_prose() -> None:
    answer = f"Sure, here is the kernel.\n\n{CODE}\nThis kernel doubles each element.\nEnjoy!"
    assert (parse_answer(answer).source or "").strip() == CODE.strip()


def test_it_reads_an_indented_block() -> None:
    answer = "1. The file:\n\n" + "\n".join(f"   {line}" for line in fenced(CODE).split("\n"))
    assert parse_answer(answer).source == CODE


def test_it_reads_windows_line_ends() -> None:
    assert parse_answer(fenced(CODE).replace("\n", "\r\n")).source == CODE


def test_it_accepts_an_unclosed_block_that_is_complete() -> None:
    assert parse_answer(f"```python\n{CODE}", finish_reason="stop").source == CODE


@pytest.mark.parametrize("missing", ["import torch", "import triton", "import triton.language as tl"])
def test_it_adds_a_missing_import_and_says_so(missing: str) -> None:
    code = '"""Doubles."""\nfrom __future__ import annotations\n' + CODE.replace(f"{missing}\n", "", 1)
    proposal = parse_answer(fenced(code))
    assert f"added missing {missing}" in proposal.title
    tree = ast.parse(proposal.source or "")
    assert ast.get_docstring(tree) == "Doubles."
    assert [node.module for node in tree.body if isinstance(node, ast.ImportFrom)] == ["__future__"]
    assert missing in (proposal.source or "").split("\n")


def test_it_knows_names_that_are_bound_in_another_way() -> None:
    code = f"from torch import nn\nfrom torch.nn import functional as F\n{CODE}\nMixin = nn.Module, F.relu\n"
    assert parse_answer(fenced(code)).source == code


def test_a_cut_off_answer_is_feedback() -> None:
    proposal = parse_answer(f"```python\n{CODE}", finish_reason="length")
    assert proposal.source is None
    assert "cut off at the token limit" in proposal.problem


def test_a_cut_off_second_block_falls_back_on_the_first() -> None:
    proposal = parse_answer(f"{fenced(CODE)}\nbetter:\n```python\n{CODE[:-40]}", finish_reason="length")
    assert proposal.source == CODE
    assert "an earlier one is used" in proposal.title


def test_cut_off_code_without_a_fence_is_not_taken_for_whole() -> None:
    assert parse_answer(CODE + "\n\ndef unfinished(", finish_reason="length").source is None


def test_an_error_in_a_complete_block_is_left_to_the_sandbox() -> None:
    broken = CODE.replace("def forward(self, x):", "def forward(self, x)")
    proposal = parse_answer(fenced(broken))
    assert proposal.source == broken
    assert "not valid Python" in proposal.title


@pytest.mark.parametrize(
    ("answer", "reason", "problem"),
    [
        ("", "stop", "The answer is empty."),
        ("I cannot help with that.", "stop", "holds no code block"),
        ("<think>hmm, let me see", "length", "the token limit was reached while thinking"),
        ("<think>done</think>", "stop", "nothing but thinking"),
        (fenced(CODE.replace("ModelNew", "Model")), "stop", "must be called ModelNew"),
        (fenced("x = 1"), "stop", "No code block defines class ModelNew"),
        ("```python\nclass ModelNew:\n    def forward(self", "stop", "is not closed and does not parse: line 2"),
        ("", "content_filter", "content filter"),
    ],
)
def test_an_answer_without_code_says_what_to_do(answer: str, reason: str, problem: str) -> None:
    proposal = parse_answer(answer, finish_reason=reason)
    assert proposal.source is None
    assert problem in proposal.problem
    assert proposal.problem.endswith("defines class ModelNew.")


def test_an_endless_source_is_feedback() -> None:
    proposal = parse_answer(fenced(CODE + "# filler\n" * 40_000))
    assert proposal.source is None
    assert "the limit is 200000" in proposal.problem


PIECES = st.sampled_from(
    [
        *("```", "```python", "~~~", "````", "\n", " ", "\t", "\x00", "\ud800", "\r\n", '"""', "'''", "\\", "\f"),
        *("<think>", "</think>", "class ModelNew:", "class Model", "(" * 300, "-" * 5000, "[1," * 200, "pass"),
        *("from __future__ import annotations", "global x", "tl.load", *IMPORTS.values(), KERNEL, MODEL, CODE),
    ]
)


@given(st.lists(PIECES | st.text(max_size=20), max_size=25), st.sampled_from(["", "stop", "length", "content_filter"]))
def test_it_never_raises_and_always_answers(pieces: list[str], finish_reason: str) -> None:
    proposal = parse_answer("".join(pieces), finish_reason)
    assert proposal.source or proposal.problem
    assert proposal.model_validate_json(proposal.model_dump_json()) == proposal


@given(st.lists(PIECES | st.text(max_size=20), max_size=12), st.text(max_size=40))
def test_a_block_after_any_closed_prose_is_found(pieces: list[str], epilogue: str) -> None:
    prose = "".join(pieces).replace("`", "").replace("~", "").replace("<", "")
    proposal = parse_answer(f"{prose}\n\n{fenced(CODE)}\n{epilogue.replace('`', '').replace('~', '').replace('<', '')}")
    assert proposal.source == CODE
