"""Asks a language model for candidates."""

from services.contracts import ProposeOutcome, ProposeRequest, ProposeResult
from services.inference.settings import InferenceSettings

NOT_CONFIGURED = "No model is configured: set INFERENCE_BASE_URL to an OpenAI-compatible server."


def propose_llm(request: ProposeRequest, settings: InferenceSettings) -> ProposeResult:
    """Candidates from the configured model."""
    return ProposeResult(
        turn_id=request.turn_id, attempt=request.attempt, outcome=ProposeOutcome.FAILED, reason=NOT_CONFIGURED
    )
