"""Hands a request to the proposer that it names."""

import time

from services.contracts import Proposer, ProposeRequest, ProposeResult
from services.inference.settings import InferenceSettings, load_settings


def propose(request: ProposeRequest, settings: InferenceSettings | None = None) -> ProposeResult:
    """Candidates for one Turn, with the time taken. Imports a proposer only when it is asked for."""
    started = time.monotonic()
    result = _ask(request, settings)
    return result.model_copy(update={"seconds": round(time.monotonic() - started, 3)})


def _ask(request: ProposeRequest, settings: InferenceSettings | None) -> ProposeResult:
    if request.proposer is Proposer.SEED:
        from services.inference.seed import propose_seed

        return propose_seed(request)
    from services.inference.llm import propose_llm

    return propose_llm(request, settings or load_settings())
