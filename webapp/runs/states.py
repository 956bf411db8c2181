"""States of Runs, Turns and Candidates."""

from webapp.states import State


class RunState(State):
    """queued -> running <-> waiting (for the model) -> passed | failed | errored; cancelling -> cancelled from any.

    failed: no candidate passed. errored: Warpsmith's own fault.
    """

    QUEUED = "queued", "Queued"
    RUNNING = "running", "Running"
    WAITING = "waiting", "Waiting for the model"
    CANCELLING = "cancelling", "Stopping after this step"
    PASSED = "passed", "Passed"
    FAILED = "failed", "Failed"
    ERRORED = "errored", "Errored"
    CANCELLED = "cancelled", "Cancelled"


RUN_TERMINAL = frozenset({RunState.PASSED, RunState.FAILED, RunState.ERRORED, RunState.CANCELLED})
RUN_ACTIVE = frozenset(RunState) - RUN_TERMINAL
RUN_TRANSITIONS: dict[str, frozenset[str]] = {
    RunState.QUEUED: frozenset({RunState.RUNNING, RunState.CANCELLING, RunState.CANCELLED, RunState.ERRORED}),
    RunState.RUNNING: frozenset({RunState.WAITING, RunState.CANCELLING} | RUN_TERMINAL),
    RunState.WAITING: frozenset({RunState.RUNNING, RunState.CANCELLING} | RUN_TERMINAL),
    RunState.CANCELLING: frozenset({RunState.CANCELLED, RunState.ERRORED}),
}


class TurnState(State):
    """proposing <-> waiting -> evaluating -> done; nothing: the proposer had no answer; errored: ours."""

    PROPOSING = "proposing", "Proposing"
    WAITING = "waiting", "Waiting for the model"
    EVALUATING = "evaluating", "Evaluating"
    DONE = "done", "Done"
    NOTHING = "nothing", "No proposal"
    ERRORED = "errored", "Errored"
    CANCELLED = "cancelled", "Cancelled"


TURN_ACTIVE = frozenset({TurnState.PROPOSING, TurnState.WAITING, TurnState.EVALUATING})
TURN_TERMINAL = frozenset(TurnState) - TURN_ACTIVE
TURN_TRANSITIONS: dict[str, frozenset[str]] = {
    TurnState.PROPOSING: frozenset(TurnState) - {TurnState.PROPOSING},
    TurnState.WAITING: frozenset({TurnState.PROPOSING, TurnState.CANCELLED, TurnState.ERRORED}),
    TurnState.EVALUATING: frozenset({TurnState.DONE, TurnState.CANCELLED, TurnState.ERRORED}),
}


class CandidateState(State):
    """queued -> evaluating -> judged; unreadable: the answer held no new source; errored: ours."""

    QUEUED = "queued", "Queued"
    EVALUATING = "evaluating", "Evaluating"
    JUDGED = "judged", "Judged"
    UNREADABLE = "unreadable", "Not judged"
    ERRORED = "errored", "Errored"
    CANCELLED = "cancelled", "Cancelled"


CANDIDATE_ACTIVE = frozenset({CandidateState.QUEUED, CandidateState.EVALUATING})
CANDIDATE_TERMINAL = frozenset(CandidateState) - CANDIDATE_ACTIVE
CANDIDATE_TRANSITIONS: dict[str, frozenset[str]] = {
    CandidateState.QUEUED: frozenset(CandidateState) - {CandidateState.QUEUED},
    CandidateState.EVALUATING: frozenset(
        {CandidateState.QUEUED, CandidateState.JUDGED, CandidateState.ERRORED, CandidateState.CANCELLED}
    ),
}
