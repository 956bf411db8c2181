"""The compiler seed: Inductor's Triton for an op, rewritten as a file that a person would have written.

No model, no GPU and none of the user's code: it starts from the op's ATen graph.
"""

import time
from collections.abc import Sequence

from services.contracts import Proposal, ProposeOutcome, ProposeRequest, ProposeResult, target_spec
from services.inference.seed.errors import NoSeedError


def propose_seed(request: ProposeRequest) -> ProposeResult:
    """One candidate, or why there is none. The first call in a process imports torch and Inductor (about 5 s).

    Any other exception than a NoSeedError is a defect of ours and goes through: the caller records it as such.
    """
    started = time.monotonic()
    try:
        proposal = _proposal(request)
    except NoSeedError as error:
        return ProposeResult(
            turn_id=request.turn_id,
            attempt=request.attempt,
            outcome=ProposeOutcome.NOTHING,
            reason=f"no seed: {error}"[:500],
            seconds=time.monotonic() - started,
        )
    return ProposeResult(
        turn_id=request.turn_id,
        attempt=request.attempt,
        outcome=ProposeOutcome.PROPOSED,
        proposals=[proposal],
        parameters={"compiler": "inductor", "target": request.target},
        seconds=time.monotonic() - started,
    )


def _proposal(request: ProposeRequest) -> Proposal:
    if request.graph is None:
        why = request.graph_error.removeprefix("no graph: ") or "the op was not traced"
        raise NoSeedError(why)
    # torch is imported here: a worker that only asks a model never needs it
    from services.inference.seed.compile import compile_seed
    from services.inference.seed.module import fused_operators

    seed = compile_seed(request.graph, request.op.source, request.op.name, target_spec(request.target))
    return Proposal(source=seed.source, title=_title(seed.kernel_count, len(seed.fused), fused_operators(seed)))


def _title(kernels: int, calls: int, operators: Sequence[str]) -> str:
    several = "" if kernels == 1 else "s"
    if not operators:
        return f"compiler seed: {kernels} kernel{several} for copies into another layout"
    shown = ", ".join(operators[:3]) + (", …" if len(operators) > 3 else "")
    verb = "fuses" if kernels == 1 else "fuse"
    return f"compiler seed: {kernels} kernel{several} {verb} {calls} ATen call{'' if calls == 1 else 's'} ({shown})"


__all__ = ["NoSeedError", "propose_seed"]
