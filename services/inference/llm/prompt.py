"""Builds the prompt of one Turn: for live runs and for training alike, so that a model is trained on what it will see.

Text that never changes comes first, then what changes with the GPU, the op and the turn: servers cache the prefix.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from string import Template

from services.contracts import Attempt, OpFacts, ProposeRequest, TensorSpec, TolerancePolicy, Verdict, target_spec
from services.inference.llm.history import select_context

BYTES_PER_TOKEN = 3
"""Code takes 3 to 4 bytes a token in common tokenizers; the lower figure keeps the estimate on the safe side."""
LATEST_FEEDBACK_TOKENS = 3000
EARLIER_FEEDBACK_TOKENS = 300

_FOLDER = Path(__file__).parent / "prompts"
_TOLERANCES = {
    TolerancePolicy.STRICT: "no more than a few times the rounding error of eager PyTorch itself.",
    TolerancePolicy.STANDARD: (
        "about 1e-4 relative for float32 and 1e-2 for bfloat16 and float16, or a few times eager's own error where "
        "that is larger. float32 must be multiplied and summed as float32: tf32 or bf16 inside is refused."
    ),
    TolerancePolicy.RELAXED: "about 2e-2 relative for float32; tf32 and bf16 inside a float32 op are allowed.",
}


@dataclass(frozen=True)
class Prompt:
    """Chat messages, their estimated size, and what was cut to fit the budget."""

    messages: list[dict[str, str]]
    tokens: int
    cuts: list[str]


class PromptTooLongError(ValueError):
    """The op alone does not fit the budget."""


def build_prompt(request: ProposeRequest, budget_tokens: int) -> Prompt:
    """The messages for one Turn within `budget_tokens` by estimate.

    Raises PromptTooLongError where rules and op alone are larger, ValueError where the target GPU is unknown.
    """
    system = f"{_text('system.md')}\n\n{_gpu(request.target)}"
    op = _op(request)
    context = select_context(request.history)
    task = _text(_task_file(context.latest))
    left = budget_tokens - estimate_tokens(system + op + task)
    if left < 0:
        raise PromptTooLongError(
            f"the op's source and the rules take about {budget_tokens - left} tokens, "
            f"but the prompt may have only {budget_tokens}"
        )
    latest, cuts = _latest(context.latest, left)
    left -= estimate_tokens(latest)
    earlier, dropped = _earlier(context.best, left)
    if dropped:
        cuts.append(dropped)
    user = "\n\n".join(part for part in (op, earlier, latest, task) if part)
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    return Prompt(messages, sum(estimate_tokens(message["content"]) for message in messages), cuts)


def estimate_tokens(text: str) -> int:
    """Tokens of a text, estimated without a tokenizer and rather too high than too low."""
    return -(-len(text.encode()) // BYTES_PER_TOKEN)


def cut_middle(text: str, tokens: int) -> str:
    """The text with its middle replaced by a visible marker where it is larger than `tokens`."""
    excess = len(text.encode()) - tokens * BYTES_PER_TOKEN
    if excess <= 0:
        return text
    data = text.encode()
    keep = max(tokens * BYTES_PER_TOKEN - 60, 0)
    head = data[: keep * 2 // 3].decode(errors="ignore")
    tail = data[len(data) - keep // 3 :].decode(errors="ignore")
    return f"{head}\n[... {len(text) - len(head) - len(tail)} characters left out ...]\n{tail}"


@lru_cache
def _text(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8").strip()


@lru_cache
def _gpu(target: str) -> str:
    gpu = target_spec(target)
    return Template(_text("gpu.md")).substitute(
        gpu.model_dump(),
        l2_mib=gpu.l2_bytes >> 20,
        shared_kib=gpu.shared_memory_bytes >> 10,
        fp32_balance=round(gpu.fp32_tflops * 1000 / gpu.bandwidth_gbps),
        triton_version=_triton_version(),
    )


def _triton_version() -> str:
    try:
        return version("triton")
    except PackageNotFoundError:
        return "3"


def _op(request: ProposeRequest) -> str:
    return Template(_text("op.md")).substitute(
        name=request.op.name,
        source=_fenced(request.op.source),
        facts=_facts(request.facts) if request.facts else "",
        tolerance=_TOLERANCES[request.op.policy],
    )


def _facts(facts: OpFacts) -> str:
    lines = [f"- inputs: {', '.join([*map(_layout, facts.inputs), *facts.scalars]) or 'none'}"]
    lines.append(f"- outputs: {', '.join(map(_layout, facts.outputs)) or 'none'}")
    lines.append(f"- parameters: {facts.parameter_count}, {facts.state_bytes} bytes with buffers")
    lines.append(
        f"- least memory traffic {facts.moved_bytes} bytes, eager's about {facts.eager_bytes} bytes; "
        f"{facts.flops} FLOPs, of which {facts.matmul_flops} in matrix products"
    )
    if facts.aten_ops:
        lines.append("- eager calls: " + ", ".join(f"{name} x{count}" for name, count in facts.aten_ops.items()))
    if facts.floor_us is not None and facts.eager_us is not None:
        lines.append(f"- predicted: eager {facts.eager_us:.1f} us, least possible {facts.floor_us:.1f} us")
    return "Seen in one run of it:\n\n" + "\n".join(lines)


def _layout(spec: TensorSpec) -> str:
    contiguous, expected = True, 1
    for size, stride in zip(reversed(spec.shape), reversed(spec.stride), strict=True):
        contiguous &= size <= 1 or stride == expected
        expected *= size
    return str(spec) if contiguous else f"{spec} with strides {spec.stride}"


def _task_file(latest: Attempt | None) -> str:
    if latest is None:
        return "first.md"
    return "improve.md" if latest.verdict is Verdict.PASSED else "repair.md"


def _latest(attempt: Attempt | None, budget: int) -> tuple[str, list[str]]:
    """The section on the latest attempt, and what was cut of it."""
    if attempt is None:
        return "", []
    heading = f"# Latest attempt: {_outcome(attempt)}"
    feedback_limit = min(LATEST_FEEDBACK_TOKENS, max(budget // 3, 0))
    feedback = cut_middle(attempt.feedback, feedback_limit)
    source = cut_middle(attempt.source, max(budget - estimate_tokens(heading + feedback) - 40, 0))
    cuts = [
        f"latest attempt's {what} cut to fit the token budget"
        for what, was, now in (("feedback", attempt.feedback, feedback), ("source", attempt.source, source))
        if was != now
    ]
    return _section(heading, source, feedback), cuts


def _earlier(attempts: list[Attempt], budget: int) -> tuple[str, str]:
    """The section on the best earlier attempts, oldest first, and a note where some did not fit."""
    chosen: list[tuple[int, str]] = []
    for attempt in attempts:
        feedback = cut_middle(attempt.feedback, EARLIER_FEEDBACK_TOKENS)
        text = _section(f"## Turn {attempt.turn}: {_outcome(attempt)}", attempt.source, feedback)
        if estimate_tokens(text) > budget - 40:
            break
        budget -= estimate_tokens(text)
        chosen.append((attempt.turn, text))
    dropped = len(attempts) - len(chosen)
    note = f"{dropped} earlier attempt{'s' * (dropped > 1)} left out: the token budget is used up" if dropped else ""
    parts = [text for _, text in sorted(chosen, key=lambda item: item[0])]
    if note and budget > 40:
        parts.append(f"[{note}]")
    return ("# Best earlier attempts\n\n" + "\n\n".join(parts) if parts else ""), note


def _section(heading: str, source: str, feedback: str) -> str:
    code = _fenced(source) if source.strip() else "(no code could be read from this answer)"
    parts = [heading, code]
    if feedback:
        parts.append(f"Feedback:\n\n{_fenced(feedback, 'text')}")
    return "\n\n".join(parts)


def _outcome(attempt: Attempt) -> str:
    if attempt.verdict is None:
        return "not judged"
    if attempt.speedup is None:
        return attempt.verdict.label
    kind = "measured" if attempt.speedup_measured else "predicted"
    return f"{attempt.verdict.label}, {attempt.speedup:.2f}x as fast as eager ({kind})"


def _fenced(text: str, language: str = "python") -> str:
    """A fenced block whose fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.strip()}\n{fence}"
