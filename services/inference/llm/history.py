"""Which earlier attempts of a run go into the next prompt."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from services.contracts import Attempt, Verdict
from services.inference.llm.parser import parse

TOP_ATTEMPTS = 4
"""w of Dr. Kernel's context management for sequential test-time scaling."""

_NEVER_RAN = frozenset(
    {
        Verdict.COMPILE_ERROR,
        Verdict.LOAD_ERROR,
        Verdict.STATE_MISMATCH,
        Verdict.RUNTIME_ERROR,
        Verdict.ILLEGAL_MEMORY,
        Verdict.TIMEOUT,
        Verdict.OUT_OF_MEMORY,
    }
)
_SAYS_NOTHING = frozenset({None, Verdict.INFRASTRUCTURE, Verdict.INVALID_REFERENCE})


@dataclass(frozen=True)
class Context:
    """The best distinct attempts, best first, and the latest turn's best one, which is not among them."""

    best: list[Attempt]
    latest: Attempt | None


def select_context(history: Sequence[Attempt], top: int = TOP_ATTEMPTS) -> Context:
    """The `top` best attempts by verdict and speedup plus the latest, without two of the same program."""
    ranked = sorted(history, key=rank, reverse=True)
    last_turn = max((attempt.turn for attempt in history), default=0)
    latest = next((attempt for attempt in ranked if attempt.turn == last_turn), None)
    seen = {program_key(latest.source)} if latest else set()
    best: list[Attempt] = []
    for attempt in ranked:
        key = program_key(attempt.source)
        if attempt.source.strip() and key not in seen and len(best) < top:
            seen.add(key)
            best.append(attempt)
    return Context(best, latest)


def rank(attempt: Attempt) -> tuple[int, float, int]:
    """How good an attempt is: passed by speedup, then wrong ones that ran, then the rest; newer before older."""
    if attempt.verdict is Verdict.PASSED:
        return 3, attempt.speedup or 0.0, attempt.turn
    if attempt.verdict in _SAYS_NOTHING:
        return 0, 0.0, attempt.turn
    return 1 if attempt.verdict in _NEVER_RAN else 2, 0.0, attempt.turn


def program_key(source: str) -> str:
    """Equal for sources that differ only in layout, comments and docstrings."""
    tree = parse(source)
    if tree is None:
        return " ".join(source.split())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and _starts_with_docstring(node):
            del node.body[0]
    try:
        return ast.dump(tree)
    except RecursionError:
        return " ".join(source.split())


def _starts_with_docstring(node: ast.Module | ast.FunctionDef | ast.ClassDef) -> bool:
    first = node.body[0] if node.body else None
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
