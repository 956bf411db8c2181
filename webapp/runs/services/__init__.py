"""Writes to runs: start, the step from turn to turn, the services' answers, and recovery of lost work."""

from webapp.runs.services.answers import record_evaluation, record_progress, record_proposals
from webapp.runs.services.recovery import recover
from webapp.runs.services.steps import advance, cancel_run, retry_run, start_run

__all__ = [
    "advance",
    "cancel_run",
    "record_evaluation",
    "record_progress",
    "record_proposals",
    "recover",
    "retry_run",
    "start_run",
]
