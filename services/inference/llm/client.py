"""Asks an OpenAI-compatible server for samples.

The SDK retries broken connections, timeouts and server errors; a 429 is not retried here, because the Run waits for it
where a person can see it.
"""

import logging
import re
import ssl
import time
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlsplit

import httpx2
import openai
from openai import Omit, OpenAI
from openai.types import Model
from openai.types.chat import ChatCompletion
from pydantic import JsonValue

from services.contracts import Usage
from services.inference.llm.faults import ModelFault, error_text, fault_of, is_about_context_length, misfit
from services.inference.settings import InferenceSettings

log = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S = 10.0
_ERRORS = (openai.OpenAIError, httpx2.HTTPError, httpx2.InvalidURL, ValueError, OSError)
_OPTIONAL = ("n", "seed", "top_p", "temperature", "max_tokens")
"""Sampling parameters that some servers refuse; max_tokens is then sent under its newer name."""


@dataclass(frozen=True)
class Answer:
    """One sample: the text, and why it ended ("stop", "length", ...)."""

    text: str
    finish_reason: str
    thinking: str = ""
    """What a server with a reasoning parser gives apart from the text."""


@dataclass
class Samples:
    """Answers of one Turn with what was sent and what it took."""

    answers: list[Answer] = field(default_factory=list)
    parameters: dict[str, JsonValue] = field(default_factory=dict)
    """As sent; request number i of several has seed + answers already there."""
    requests: int = 0
    usage: Usage = field(default_factory=Usage)
    shortfall: str = ""
    """Why there are fewer answers than asked for."""


@dataclass(frozen=True)
class ServedModel:
    """A model that the server lists; `context_tokens` where the server tells (vLLM's max_model_len)."""

    name: str
    context_tokens: int | None = None


class ModelClient:
    """A connection to the configured server, for use in a `with`. Raises ModelFault alone."""

    def __init__(self, settings: InferenceSettings) -> None:
        self.settings = settings
        key = settings.api_key.get_secret_value()
        # The SDK would else take them from the environment.
        headers: Any = {"OpenAI-Organization": Omit(), "OpenAI-Project": Omit()}
        self._sdk = OpenAI(
            base_url=settings.base_url,
            api_key=key or "none",
            max_retries=settings.retries,
            default_headers=headers,
            http_client=_http_client(settings),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._sdk.close()

    def models(self, timeout_s: float | None = None) -> list[ServedModel]:
        """What the server lists; with a timeout it is asked once, without retries."""
        patient = self._sdk.with_options(timeout=_timeout(self.settings.timeout_s))
        sdk = patient if timeout_s is None else self._sdk.with_options(timeout=timeout_s, max_retries=0)
        try:
            listed = getattr(sdk.models.list(), "data", None)
        except _ERRORS as error:
            raise fault_of(error, self.settings) from None
        if not isinstance(listed, list):
            raise misfit(self.settings)
        return [_served(model) for model in listed if isinstance(getattr(model, "id", None), str)]

    def resolve_model(self) -> ServedModel:
        """The configured model, else the first that the server lists."""
        if self.settings.model:
            return ServedModel(self.settings.model)
        models = self.models()
        if not models:
            raise ModelFault(f"The server at {self.settings.host} serves no model: load one, or set INFERENCE_MODEL.")
        return models[0]

    def sample(self, model: str, messages: list[dict[str, str]], count: int, seed: int, max_tokens: int) -> Samples:
        """`count` answers: in one request with n, and in further ones where the server gives fewer.

        Some answers are better than none: a fault after the first is told in `shortfall`.
        """
        samples = Samples(parameters=self._parameters(count, seed, max_tokens))
        deadline = time.monotonic() + self.settings.turn_limit_s
        while len(samples.answers) < count and samples.requests < count:
            try:
                completion = self._complete(model, messages, samples, count - len(samples.answers), deadline)
                answers = self._answers(completion)
            except ModelFault as fault:
                if not samples.answers:
                    raise
                samples.shortfall = fault.reason
                break
            samples.answers += answers[: count - len(samples.answers)]
            samples.usage = _add(samples.usage, completion)
            samples.requests += 1
        return samples

    def _parameters(self, count: int, seed: int, max_tokens: int) -> dict[str, JsonValue]:
        sampling: dict[str, JsonValue] = {"temperature": self.settings.temperature, "top_p": self.settings.top_p}
        return {"n": count, "seed": seed, **sampling, "max_tokens": max_tokens}

    def _complete(
        self, model: str, messages: list[dict[str, str]], samples: Samples, missing: int, deadline: float
    ) -> ChatCompletion:
        """One request. A parameter that the server refuses is dropped from the samples' and the request sent again."""
        while True:
            sent = dict(samples.parameters)
            if "n" in sent:
                sent["n"] = missing
            if isinstance(seed := sent.get("seed"), int):
                sent["seed"] = seed + len(samples.answers)
            create: Any = self._sdk.with_options(timeout=self._time_left(deadline)).chat.completions.create
            try:
                completion = create(model=model, messages=messages, **sent)
            except _ERRORS as error:
                refused = _refused_parameter(error, sent)
                if refused is None:
                    raise fault_of(error, self.settings) from None
                value = samples.parameters.pop(refused)
                if refused == "max_tokens":
                    samples.parameters["max_completion_tokens"] = value
                log.info("the server at %s refuses %s: sent again without", self.settings.host, refused)
                continue
            if not isinstance(completion, ChatCompletion):
                raise misfit(self.settings)
            return completion

    def _time_left(self, deadline: float) -> httpx2.Timeout:
        """Timeout of one request, so that it ends before the Turn's deadline with all its retries."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise ModelFault(
                f"The answers took longer than {self.settings.turn_limit_s} s together: raise INFERENCE_TURN_LIMIT_S, "
                "or ask for fewer samples.",
                retry_after_s=60,
            )
        return _timeout(min(self.settings.timeout_s, left / (self.settings.retries + 1)))

    def _answers(self, completion: ChatCompletion) -> list[Answer]:
        choices = completion.choices if isinstance(completion.choices, list) else []
        answers = [_answer(choice) for choice in choices if getattr(choice, "message", None) is not None]
        if not answers:
            raise ModelFault(f"The server at {self.settings.host} answered without any choice.", retry_after_s=30)
        for answer in answers:
            log.info("answer of %d characters, finish reason: %s", len(answer.text), answer.finish_reason or "none")
        return answers


def _timeout(seconds: float) -> httpx2.Timeout:
    return httpx2.Timeout(seconds, connect=min(seconds, _CONNECT_TIMEOUT_S))


def _http_client(settings: InferenceSettings) -> httpx2.Client:
    """The SDK's usual client; a server on this machine is never asked through the environment's proxy."""
    host = urlsplit(settings.base_url).hostname or ""
    options: dict[str, Any] = {"trust_env": False} if host == "localhost" or re.match(r"127\.|::1$", host) else {}
    if settings.ca_file is not None:
        try:
            options["verify"] = ssl.create_default_context(cafile=settings.ca_file)
        except OSError:
            raise ModelFault("INFERENCE_CA_FILE holds no certificate: it must be a PEM file.") from None
    hooks: dict[str, Any] = {"response": [_leave_rate_limits_to_the_run]}
    if not settings.api_key.get_secret_value():
        hooks["request"] = [_without_authorization]
    return openai.DefaultHttpxClient(event_hooks=hooks, **options)


def _without_authorization(request: httpx2.Request) -> None:
    """The SDK insists on a key; a server that has none configured gets none."""
    request.headers.pop("Authorization", None)


def _leave_rate_limits_to_the_run(response: httpx2.Response) -> None:
    """The SDK obeys this header: without it, it would sleep through Retry-After."""
    if response.status_code == httpx2.codes.TOO_MANY_REQUESTS:
        response.headers["x-should-retry"] = "false"


def _served(model: Model) -> ServedModel:
    length = (model.model_extra or {}).get("max_model_len")
    return ServedModel(model.id, length if isinstance(length, int) and length > 0 else None)


def _answer(choice: Any) -> Answer:
    message = choice.message
    extra = getattr(message, "model_extra", None) or {}
    thinking = extra.get("reasoning_content") or extra.get("reasoning") or ""
    text = message.content if isinstance(message.content, str) else message.refusal or ""
    return Answer(str(text), str(choice.finish_reason or ""), thinking if isinstance(thinking, str) else "")


def _add(usage: Usage, completion: ChatCompletion) -> Usage:
    new = completion.usage
    if new is None:
        return usage
    return Usage(
        prompt_tokens=usage.prompt_tokens + (new.prompt_tokens or 0),
        completion_tokens=usage.completion_tokens + (new.completion_tokens or 0),
    )


def _refused_parameter(error: Exception, sent: dict[str, Any]) -> str | None:
    """The optional parameter that a 400 or 422 complains of, by its `param` field or named in its message."""
    if not isinstance(error, openai.APIStatusError) or error.status_code not in (400, 422):
        return None
    if is_about_context_length(error):  # vLLM names max_tokens there
        return None
    said = error_text(error)
    for name in _OPTIONAL:
        named = re.search(rf"""['"`]{name}['"`]|^{name} must """, said)
        if name in sent and (error.param == name or (named and not error.param)):
            return name
    return None
