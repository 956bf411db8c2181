"""Asking the inference service for Candidates."""

from enum import StrEnum
from typing import Self

from pydantic import JsonValue, model_validator

from services.contracts.base import Message
from services.contracts.graph import AtenGraph
from services.contracts.ops import OpFacts, OpSpec
from services.contracts.verdicts import Verdict


class Proposer(StrEnum):
    """Who makes candidates."""

    SEED = "seed"
    LLM = "llm"


class Attempt(Message):
    """An earlier candidate of the same run, as context for the next prompt."""

    turn: int
    source: str
    verdict: Verdict | None = None
    speedup: float | None = None
    speedup_measured: bool = False
    feedback: str = ""


class ProposeRequest(Message):
    """Propose candidates for one Turn."""

    turn_id: str
    attempt: int = 1
    proposer: Proposer
    op: OpSpec
    facts: OpFacts | None = None
    graph: AtenGraph | None = None
    graph_error: str = ""
    target: str = "h200"
    turn_index: int = 0
    samples: int = 1
    history: list[Attempt] = []


class Usage(Message):
    """Tokens of one request."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


class Proposal(Message):
    """One answer: a candidate source, or why no source could be read from it."""

    source: str | None
    title: str = ""
    """One line for the timeline, e.g. "compiler seed: 2 kernels fuse 5 ATen calls"."""
    problem: str = ""
    """Feedback for the proposer where `source` is None."""
    answer: str = ""
    """The model's raw text."""
    finish_reason: str = ""

    @model_validator(mode="after")
    def _has_source_or_problem(self) -> Self:
        if self.source is None and not self.problem:
            raise ValueError("a proposal without a source says why")
        return self


class ProposeOutcome(StrEnum):
    """proposed: at least one answer. nothing: this proposer cannot help, `reason` says why.
    waiting: the model is away, try again later. failed: it will not work until someone changes the set-up.
    """

    PROPOSED = "proposed"
    NOTHING = "nothing"
    WAITING = "waiting"
    FAILED = "failed"


class ProposeResult(Message):
    """Answered to `runs.record_proposals`."""

    turn_id: str
    attempt: int = 1
    outcome: ProposeOutcome
    reason: str = ""
    proposals: list[Proposal] = []
    prompt: list[dict[str, str]] = []
    """Chat messages as sent, role and content."""
    model: str = ""
    parameters: dict[str, JsonValue] = {}
    """Sampling parameters as sent."""
    usage: Usage = Usage()
    retry_after_s: float | None = None
    worker: str = ""
    seconds: float = 0.0

    @model_validator(mode="after")
    def _says_why(self) -> Self:
        if self.outcome is ProposeOutcome.PROPOSED and not self.proposals:
            raise ValueError("proposed needs at least one proposal")
        if self.outcome is not ProposeOutcome.PROPOSED and not self.reason:
            raise ValueError(f"{self.outcome} needs a reason")
        return self
