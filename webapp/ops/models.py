"""Ops: uploaded PyTorch references."""

from typing import Any, ClassVar

from django.db import models

from services.contracts import OpSpec, ScreeningReport, TolerancePolicy
from webapp.accounts.models import Team, User
from webapp.ops.states import ACTIVE, TRANSITIONS, OpState
from webapp.states import StatefulModel, VersionedModel


class Op(StatefulModel, VersionedModel):
    """A PyTorch reference in KernelBench format, with its screening report."""

    TRANSITIONS = TRANSITIONS

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="ops")
    owner = models.ForeignKey(User, on_delete=models.PROTECT, related_name="ops")
    name = models.CharField(max_length=120)
    source = models.TextField()
    source_sha256 = models.CharField(max_length=64)
    policy = models.CharField(
        max_length=12, choices=[(policy.value, policy.value) for policy in TolerancePolicy], default="standard"
    )
    target = models.CharField(max_length=20)
    state = models.CharField(max_length=12, choices=OpState, default=OpState.QUEUED)
    report_json: Any = models.JSONField(null=True, blank=True)
    """The ScreeningReport as it came, without the graph."""
    graph_json: Any = models.JSONField(null=True, blank=True)
    problem = models.TextField(blank=True)
    """Why screening errored: ours, not the op's."""
    attempt = models.PositiveSmallIntegerField(default=1)
    lease_until = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar = ["-pk"]
        indexes: ClassVar = [models.Index(fields=["team", "-id"]), models.Index(fields=["state", "lease_until"])]

    def __str__(self) -> str:
        return self.name

    @property
    def is_active(self) -> bool:
        """Whether screening still goes on."""
        return self.state in ACTIVE

    @property
    def report(self) -> ScreeningReport | None:
        """The screening report, without the graph; None until there is one."""
        return ScreeningReport.model_validate(self.report_json) if self.report_json else None

    def spec(self) -> OpSpec:
        """The op as services see it."""
        return OpSpec(op_id=str(self.pk), name=self.name, source=self.source, policy=TolerancePolicy(self.policy))
