"""Runs, their Turns, Candidates and Evaluations."""

from typing import Any, ClassVar

from django.db import models

from services import contracts
from services.contracts import Backend, IsolationLevel, Proposer, Verdict
from webapp.accounts.models import User
from webapp.ops.models import Op
from webapp.runs.states import (
    CANDIDATE_TRANSITIONS,
    RUN_ACTIVE,
    RUN_TRANSITIONS,
    TURN_ACTIVE,
    TURN_TRANSITIONS,
    CandidateState,
    RunState,
    TurnState,
)
from webapp.states import StatefulModel, VersionedModel


class Strategy(models.TextChoices):
    """Which proposers a Run asks, in order."""

    SEED_THEN_MODEL = "seed-then-model", "Compiler seed, then model turns where a model is configured"
    SEED = "seed", "Compiler seed only"
    MODEL = "model", "Model turns only"


class Run(StatefulModel, VersionedModel):
    """One optimisation of an Op with a Strategy, a budget and a target GPU."""

    TRANSITIONS = RUN_TRANSITIONS

    op = models.ForeignKey(Op, on_delete=models.CASCADE, related_name="runs")
    owner = models.ForeignKey(User, on_delete=models.PROTECT, related_name="runs")
    strategy = models.CharField(max_length=20, choices=Strategy, default=Strategy.SEED_THEN_MODEL)
    target = models.CharField(max_length=20)
    max_turns = models.PositiveSmallIntegerField(default=4)
    samples = models.PositiveSmallIntegerField(default=1)
    state = models.CharField(max_length=12, choices=RunState, default=RunState.QUEUED)
    reason = models.TextField(blank=True)
    """One sentence: why it stopped and what gained what."""
    best = models.ForeignKey("Candidate", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    retried_from = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="retries")
    lease_until = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering: ClassVar = ["-pk"]
        indexes: ClassVar = [models.Index(fields=["op", "-id"]), models.Index(fields=["state", "lease_until"])]

    def __str__(self) -> str:
        return f"run {self.pk} of {self.op}"

    @property
    def is_active(self) -> bool:
        """Whether it still goes on."""
        return self.state in RUN_ACTIVE


class Turn(StatefulModel):
    """One round of a Run: a prompt or search step and its Candidates."""

    TRANSITIONS = TURN_TRANSITIONS

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="turns")
    index = models.PositiveSmallIntegerField()
    proposer = models.CharField(max_length=12, choices=[(proposer.value, proposer.value) for proposer in Proposer])
    state = models.CharField(max_length=12, choices=TurnState, default=TurnState.PROPOSING)
    reason = models.TextField(blank=True)
    """Why there is no proposal, or why it waits."""
    prompt_json: Any = models.JSONField(default=list, blank=True)
    model = models.CharField(max_length=200, blank=True)
    parameters_json: Any = models.JSONField(default=dict, blank=True)
    prompt_tokens = models.PositiveIntegerField(default=0)
    completion_tokens = models.PositiveIntegerField(default=0)
    propose_seconds = models.FloatField(null=True, blank=True)
    worker = models.CharField(max_length=200, blank=True)
    attempt = models.PositiveSmallIntegerField(default=1)
    lease_until = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(auto_now_add=True)
    proposed_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering: ClassVar = ["index"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["run", "index"], name="one_turn_per_index")]
        indexes: ClassVar = [models.Index(fields=["state", "lease_until"])]

    def __str__(self) -> str:
        return f"turn {self.index} of run {self.run_id}"

    @property
    def is_active(self) -> bool:
        """Whether it still goes on."""
        return self.state in TURN_ACTIVE


class Candidate(StatefulModel):
    """One source text that defines ModelNew, or an answer in which there was none."""

    TRANSITIONS = CANDIDATE_TRANSITIONS

    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="candidates")
    index = models.PositiveSmallIntegerField()
    source = models.TextField(blank=True)
    source_sha256 = models.CharField(max_length=64, blank=True)
    title = models.CharField(max_length=300, blank=True)
    answer = models.TextField(blank=True)
    """The model's raw text."""
    problem = models.TextField(blank=True)
    """Why no source could be read from the answer, or why judging errored."""
    finish_reason = models.CharField(max_length=40, blank=True)
    state = models.CharField(max_length=12, choices=CandidateState, default=CandidateState.QUEUED)
    stage = models.CharField(max_length=20, blank=True)
    """The ladder's stage that a worker is at."""
    worker = models.CharField(max_length=200, blank=True)
    attempt = models.PositiveSmallIntegerField(default=1)
    lease_until = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering: ClassVar = ["index"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["turn", "index"], name="one_candidate_per_index")]
        indexes: ClassVar = [models.Index(fields=["state", "lease_until"])]

    def __str__(self) -> str:
        return f"candidate {self.pk}"


class Evaluation(models.Model):
    """The sandbox's verdict on one Candidate on one kind of GPU; `message` is the whole report."""

    candidate = models.ForeignKey(Candidate, on_delete=models.CASCADE, related_name="evaluations")
    target = models.CharField(max_length=20)
    backend = models.CharField(max_length=8, choices=[(backend.value, backend.value) for backend in Backend])
    verdict = models.CharField(max_length=24, choices=[(verdict.value, verdict.label) for verdict in Verdict])
    summary = models.TextField()
    predicted_speedup = models.FloatField(null=True, blank=True)
    """By a roofline, never measured."""
    measured_speedup = models.FloatField(null=True, blank=True)
    isolation = models.CharField(max_length=8, choices=[(level.value, level.value) for level in IsolationLevel])
    evaluator_version = models.CharField(max_length=40)
    message: Any = models.JSONField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar = ["pk"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["candidate", "target", "backend"], name="one_evaluation_per_target")
        ]

    def __str__(self) -> str:
        return f"{self.verdict} for candidate {self.candidate_id}"

    @property
    def report(self) -> contracts.Evaluation:
        """The message as the sandbox sent it."""
        return contracts.Evaluation.model_validate(self.message)

    @property
    def speedup(self) -> float | None:
        """Measured where there is a measurement, else predicted: for ranking, not for showing."""
        return self.measured_speedup if self.measured_speedup is not None else self.predicted_speedup
