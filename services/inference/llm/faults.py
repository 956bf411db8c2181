"""What keeps a model from answering, in one sentence that says what to change, and whether waiting helps."""

import math
import re
import socket
import ssl
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx2
import openai

from services.inference.settings import InferenceSettings

CONNECTION_RETRY_S = 20.0
OVERLOAD_RETRY_S = 30.0

_CONTEXT_LENGTH = re.compile(
    r"context[ _-]?(?:length|window|size)|maximum (?:input|model|sequence) length|max_model_len"
    r"|(?:prompt|input) is too long|too many (?:input )?tokens|reduce the length",
    re.IGNORECASE,
)
_MODEL_LIMIT = re.compile(r"(?:context (?:length|window|size)|max_model_len)\D{0,40}?(\d{3,})", re.IGNORECASE)


class ModelFault(Exception):
    """No answer. `retry_after_s` None: waiting does not help, someone must change the set-up."""

    def __init__(self, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_s = retry_after_s


class ContextTooLongFault(ModelFault):
    """The prompt and the answer do not fit the model; `limit_tokens` where the server tells its limit."""

    def __init__(self, reason: str, limit_tokens: int | None) -> None:
        super().__init__(reason)
        self.limit_tokens = limit_tokens


def fault_of(error: Exception, settings: InferenceSettings) -> ModelFault:
    """The fault behind an exception of the OpenAI SDK or of HTTP. The API key is in no reason."""
    if isinstance(error, openai.APIStatusError):
        return _status_fault(error, settings)
    if isinstance(error, openai.APITimeoutError | httpx2.TimeoutException):
        return ModelFault(
            f"The model at {settings.host} did not answer within {settings.timeout_s:g} s. If it is always so slow, "
            "raise INFERENCE_TIMEOUT_S or lower INFERENCE_MAX_TOKENS.",
            retry_after_s=OVERLOAD_RETRY_S,
        )
    if isinstance(error, openai.APIConnectionError | httpx2.TransportError | OSError):
        return _connection_fault(error, settings)
    if isinstance(error, openai.APIResponseValidationError | ValueError):
        return ModelFault(
            f"The server at {settings.host} gave an answer that is not complete JSON.", retry_after_s=OVERLOAD_RETRY_S
        )
    return ModelFault(f"The request to {settings.host} failed ({type(error).__name__}): {_said(error, settings)}")


def misfit(settings: InferenceSettings) -> ModelFault:
    """Something answers, but not in the OpenAI protocol."""
    return ModelFault(
        f"{settings.host} answers, but not in the OpenAI protocol: correct INFERENCE_BASE_URL "
        "(it usually ends with /v1)."
    )


def _status_fault(error: openai.APIStatusError, settings: InferenceSettings) -> ModelFault:
    status = error.status_code
    if status == httpx2.codes.UNAUTHORIZED:
        have = "refuses the API key: correct" if settings.api_key.get_secret_value() else "wants an API key: set"
        return ModelFault(f"The server at {settings.host} {have} INFERENCE_API_KEY.")
    if status == httpx2.codes.FORBIDDEN:
        return ModelFault(
            f"The server at {settings.host} does not let this API key use {_model(settings)}: give the key that right, "
            "or change INFERENCE_API_KEY or INFERENCE_MODEL."
        )
    if error.code in ("insufficient_quota", "billing_hard_limit_reached") or status == httpx2.codes.PAYMENT_REQUIRED:
        return ModelFault(
            f"The account at {settings.host} has no credit left: add credit, or change INFERENCE_API_KEY."
        )
    if status == httpx2.codes.TOO_MANY_REQUESTS:
        return ModelFault(
            f"The server at {settings.host} takes no more requests for now (429).",
            retry_after_s=_retry_after_s(error.response),
        )
    if status >= 500 or status in (httpx2.codes.REQUEST_TIMEOUT, httpx2.codes.CONFLICT):
        return ModelFault(
            f"The server at {settings.host} has a fault of its own (HTTP {status}).",
            retry_after_s=_retry_after_s(error.response),
        )
    if _is_unknown_model(error):
        return ModelFault(
            f"The server at {settings.host} does not serve {_model(settings)}: correct INFERENCE_MODEL, or leave it "
            "empty for the first model that the server lists."
        )
    if status in (httpx2.codes.NOT_FOUND, httpx2.codes.METHOD_NOT_ALLOWED):
        return misfit(settings)
    if is_about_context_length(error):
        return _context_too_long(error, settings)
    return ModelFault(f"The server at {settings.host} refused the request (HTTP {status}): {_said(error, settings)}")


def is_about_context_length(error: openai.APIStatusError) -> bool:
    """Whether prompt and answer are too long for the model."""
    return error.code == "context_length_exceeded" or bool(_CONTEXT_LENGTH.search(error.message))


def error_text(error: Exception) -> str:
    """What the server said, else what the SDK says."""
    body = getattr(error, "body", None)
    return str(body.get("message") or error) if isinstance(body, dict) else str(error)


def _is_unknown_model(error: openai.APIStatusError) -> bool:
    if error.code == "model_not_found":
        return True
    about_model = re.search(r"\bmodel\b.*\b(?:not|unknown|invalid)\b|\bunknown model\b", error.message, re.I | re.S)
    return error.status_code == httpx2.codes.NOT_FOUND and isinstance(error.body, dict) and bool(about_model)


def _context_too_long(error: openai.APIStatusError, settings: InferenceSettings) -> ModelFault:
    match = _MODEL_LIMIT.search(error.message)
    limit = int(match[1]) if match else None
    size = f"model's context of {limit} tokens" if limit else "model's context"
    return ContextTooLongFault(
        f"Prompt and answer do not fit the {size}: lower INFERENCE_MAX_TOKENS and INFERENCE_CONTEXT_TOKENS, "
        "or serve the model with a longer context.",
        limit,
    )


def _connection_fault(error: Exception, settings: InferenceSettings) -> ModelFault:
    causes = list(_causes(error))
    certificate = next((cause for cause in causes if isinstance(cause, ssl.SSLCertVerificationError)), None)
    if certificate is not None or any("CERTIFICATE_VERIFY_FAILED" in str(cause) for cause in causes):
        why = getattr(certificate, "verify_message", "") or "not trusted"
        return ModelFault(
            f"The certificate of {settings.host} was refused ({why}): set INFERENCE_CA_FILE to the PEM file of the "
            "authority that signed it."
        )
    if any(isinstance(cause, ssl.SSLError) or "SSL" in str(cause) for cause in causes):
        return ModelFault(
            f"{settings.host} does not speak TLS as expected: check whether INFERENCE_BASE_URL must begin with "
            "http:// instead of https://."
        )
    if any(isinstance(cause, httpx2.UnsupportedProtocol | httpx2.InvalidURL) for cause in causes):
        return misfit(settings)
    if any(isinstance(cause, socket.gaierror) or "Name or service" in str(cause) for cause in causes):
        what = "has a name that is not known here: check INFERENCE_BASE_URL and the network"
    elif any(isinstance(cause, ConnectionRefusedError) or "refused" in str(cause).lower() for cause in causes):
        what = "is not there (connection refused): start it, or check INFERENCE_BASE_URL"
    else:
        what = "broke the connection off"
    return ModelFault(f"The server at {settings.host} {what}.", retry_after_s=CONNECTION_RETRY_S)


def _causes(error: BaseException | None) -> list[BaseException]:
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    return chain


def _retry_after_s(response: httpx2.Response) -> float:
    """Retry-After (seconds or a date) between 1 s and an hour; half a minute where the server says none."""
    said = response.headers.get("retry-after", "")
    try:
        seconds = float(said)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(said) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return OVERLOAD_RETRY_S
    return min(max(seconds, 1.0), 3600.0) if math.isfinite(seconds) else OVERLOAD_RETRY_S


def _model(settings: InferenceSettings) -> str:
    return f"the model {settings.model}" if settings.model else "its first model"


def _said(error: Exception, settings: InferenceSettings) -> str:
    """What the server or the SDK said, in one line, without the key."""
    text = error_text(error)
    key = settings.api_key.get_secret_value()
    return " ".join((text.replace(key, "***") if key else text).split())[:300]
