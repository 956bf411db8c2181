"""Included by a worker under test: a hard time limit of seconds, and none that the task could notice."""

from services.inference.tasks import propose_candidates

propose_candidates.soft_time_limit = None
propose_candidates.time_limit = 2
