"""Candidates from a language model: prompt, samples, parsed answers."""

import logging
import zlib

from pydantic import JsonValue

from services.contracts import Proposal, ProposeOutcome, ProposeRequest, ProposeResult
from services.inference.llm.client import Answer, ModelClient, Samples
from services.inference.llm.faults import ContextTooLongFault, ModelFault
from services.inference.llm.parser import parse_answer
from services.inference.llm.prompt import Prompt, PromptTooLongError, build_prompt
from services.inference.settings import InferenceSettings

log = logging.getLogger(__name__)

NOT_CONFIGURED = (
    "No model is configured: set INFERENCE_BASE_URL to an OpenAI-compatible server, e.g. http://127.0.0.1:8000/v1."
)
MIN_ANSWER_TOKENS = 512
_FITS = 3
"""How often a prompt is made smaller for a server that finds it too long."""


def propose_llm(request: ProposeRequest, settings: InferenceSettings) -> ProposeResult:
    """Candidates for one Turn from the configured model; every lack is an outcome with its reason, never raised."""
    if not settings.configured:
        return _without(request, ProposeOutcome.FAILED, NOT_CONFIGURED)
    try:
        with ModelClient(settings) as client:
            return _propose(request, client)
    except ModelFault as fault:
        log.warning("turn %s: %s", request.turn_id, fault.reason)
        outcome = ProposeOutcome.FAILED if fault.retry_after_s is None else ProposeOutcome.WAITING
        return _without(request, outcome, fault.reason, fault.retry_after_s)
    except PromptTooLongError as error:
        reason = f"The model was not asked: {error}. Shorten the op's source, or raise INFERENCE_CONTEXT_TOKENS."
        return _without(request, ProposeOutcome.NOTHING, reason)


def _propose(request: ProposeRequest, client: ModelClient) -> ProposeResult:
    model = client.resolve_model()
    context = client.settings.context_tokens
    prompt, samples = _sample(request, client, model.name, min(context, model.context_tokens or context))
    proposals = [_proposal(answer) for answer in samples.answers]
    parameters: dict[str, JsonValue] = {**samples.parameters, "requests": samples.requests}
    if prompt.cuts:
        parameters["prompt_cuts"] = list(prompt.cuts)
    return ProposeResult(
        turn_id=request.turn_id,
        attempt=request.attempt,
        outcome=ProposeOutcome.PROPOSED,
        reason=samples.shortfall,
        proposals=proposals,
        prompt=prompt.messages,
        model=model.name,
        parameters=parameters,
        usage=samples.usage,
    )


def _sample(
    request: ProposeRequest, client: ModelClient, model: str, context: int, tries: int = _FITS
) -> tuple[Prompt, Samples]:
    """Prompt and answers; a prompt that the server finds too long is built again for a smaller context."""
    answer_tokens = max(min(client.settings.max_tokens, context // 2), MIN_ANSWER_TOKENS)
    prompt = build_prompt(request, context - answer_tokens)
    try:
        return prompt, client.sample(model, prompt.messages, request.samples, seed_for(request), answer_tokens)
    except ContextTooLongFault as fault:
        if tries <= 1:
            raise
        smaller = min(fault.limit_tokens or context, context * 3 // 4)
        log.info("turn %s: %d tokens are too many for the model, trying %d", request.turn_id, context, smaller)
        return _sample(request, client, model, smaller, tries - 1)


def seed_for(request: ProposeRequest) -> int:
    """The same for each delivery of one attempt, different for each turn and attempt."""
    return zlib.crc32(f"{request.turn_id}:{request.attempt}".encode()) & 0x7FFFFFFF


def _proposal(answer: Answer) -> Proposal:
    """The parsed answer; thinking that the server splits off stands before it again, so that the log is whole."""
    thinking = f"<think>\n{answer.thinking}\n</think>\n" if answer.thinking else ""
    return parse_answer(thinking + answer.text, answer.finish_reason)


def _without(
    request: ProposeRequest, outcome: ProposeOutcome, reason: str, retry_after_s: float | None = None
) -> ProposeResult:
    return ProposeResult(
        turn_id=request.turn_id, attempt=request.attempt, outcome=outcome, reason=reason, retry_after_s=retry_after_s
    )
