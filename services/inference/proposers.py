"""Hands a request to the proposer that it names."""

import threading
import time

from services.contracts import (
    AtenGraph,
    GraphInput,
    GraphNode,
    InputKind,
    OpSpec,
    Proposer,
    ProposeRequest,
    ProposeResult,
    TensorSpec,
)
from services.inference.settings import InferenceSettings, load_settings

_compiling = threading.Lock()
"""Inductor is patched for the whole process while it writes a seed."""


def propose(request: ProposeRequest, settings: InferenceSettings | None = None) -> ProposeResult:
    """Candidates for one Turn, with the time taken. Imports a proposer only when it is asked for."""
    started = time.monotonic()
    result = _ask(request, settings)
    return result.model_copy(update={"seconds": round(time.monotonic() - started, 3)})


def warm_seed() -> None:
    """Make the seed of a one-call op, so that the first turn does not pay for Inductor's imports (about 4 s)."""
    vector = TensorSpec(shape=[1024], stride=[1], dtype="float32")
    graph = AtenGraph(
        inputs=[GraphInput(name="x", kind=InputKind.INPUT, source="0", spec=vector)],
        nodes=[GraphNode(name="y", target="aten.relu.default", args=[{"node": "x"}])],
        output={"node": "y"},
        forward_parameters=["x"],
    )
    op = OpSpec(op_id="", name="warm", source="class Model: ...")
    propose(ProposeRequest(turn_id="", proposer=Proposer.SEED, op=op, graph=graph))


def _ask(request: ProposeRequest, settings: InferenceSettings | None) -> ProposeResult:
    if request.proposer is Proposer.SEED:
        with _compiling:
            from services.inference.seed import propose_seed

            return propose_seed(request)
    from services.inference.llm import propose_llm

    return propose_llm(request, settings or load_settings())
