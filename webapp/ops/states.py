"""States of an Op."""

from webapp.states import State


class OpState(State):
    """queued -> screening -> ready | refused | errored; errored and refused may be screened again."""

    QUEUED = "queued", "Queued"
    SCREENING = "screening", "Screening"
    READY = "ready", "Ready"
    REFUSED = "refused", "Refused"
    ERRORED = "errored", "Errored"


ACTIVE = frozenset({OpState.QUEUED, OpState.SCREENING})
TERMINAL = frozenset(OpState) - ACTIVE
TRANSITIONS: dict[str, frozenset[str]] = {
    OpState.QUEUED: frozenset({OpState.SCREENING, OpState.READY, OpState.REFUSED, OpState.ERRORED}),
    OpState.SCREENING: frozenset({OpState.QUEUED, OpState.READY, OpState.REFUSED, OpState.ERRORED}),
    OpState.ERRORED: frozenset({OpState.QUEUED}),
    OpState.REFUSED: frozenset({OpState.QUEUED}),
    OpState.READY: frozenset({OpState.QUEUED}),
}
