"""A candidate loaded beside its reference: built from the same arguments, filled with the same state."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from services.contracts import EvaluateRequest, Verdict
from services.sandbox.judge.outcome import Stop, blame_candidate
from services.sandbox.judge.reference import Reference
from services.sandbox.judge.state import StateMismatch, match_state
from services.sandbox.judge.subject import Subject, holding, write_state
from services.sandbox.replies import Loaded
from services.sandbox.runners import Role, RunnerKind


@contextmanager
def open_candidate(reference: Reference, request: EvaluateRequest, kind: RunnerKind) -> Iterator[Subject]:
    """A fresh process with ModelNew, its state taken from the reference. Raises Stop for the candidate's faults."""
    runners = reference.runners
    with runners.spawn(kind, Role.CANDIDATE, target=request.target, wall_s=reference.wall_s) as runner:
        with holding(runners.fence, reference.init) as init, blame_candidate("to load"):
            loaded = runner.load(
                request.source,
                "ModelNew",
                reference.loaded.init,
                init,
                seed=reference.seeds.load,
                map_cuda=True,
            )
        values = _state_for(reference, loaded)
        with blame_candidate("to take the reference's state"):
            write_state(runner, runners.fence, values)
        with Subject(runner, runners.fence, loaded) as subject:
            yield subject


def _state_for(reference: Reference, loaded: Loaded) -> dict[str, Tensor]:
    """The reference's values by the candidate's names."""
    try:
        match = match_state(reference.loaded, loaded)
    except StateMismatch as mismatch:
        raise Stop(Verdict.STATE_MISMATCH, f"{mismatch.report.message}.", mismatch.report) from mismatch
    if match.note:
        reference.note(match.note)
    owner = {entry.name: entry.tied_to or entry.name for entry in reference.loaded.state}
    own = {entry.name for entry in loaded.state if not entry.tied_to}
    return {name: reference.state[owner[source]] for name, source in match.sources.items() if name in own}
