"""Kernels: winners that a team keeps."""

from typing import ClassVar

from django.db import models

from webapp.accounts.models import Team
from webapp.ops.models import Op
from webapp.runs.models import Candidate, Evaluation


class Kernel(models.Model):
    """A library entry: a Candidate that won, versioned for its op and target, with its evidence."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="kernels")
    op = models.ForeignKey(Op, on_delete=models.CASCADE, related_name="kernels")
    name = models.CharField(max_length=120)
    target = models.CharField(max_length=20)
    version = models.PositiveIntegerField()
    source = models.TextField()
    source_sha256 = models.CharField(max_length=64)
    candidate = models.ForeignKey(Candidate, on_delete=models.PROTECT, related_name="kernels")
    evaluation = models.ForeignKey(Evaluation, on_delete=models.PROTECT, related_name="kernels")
    verified = models.BooleanField(default=False)
    """Timed again in fresh processes on a real GPU; a host verdict alone never sets it."""
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar = ["-pk"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["op", "target", "version"], name="one_kernel_per_version")
        ]

    def __str__(self) -> str:
        return f"{self.name}@{self.version} for {self.target}"

    @property
    def file_name(self) -> str:
        """Name of the downloaded file."""
        stem = "".join(char if char.isalnum() else "_" for char in self.name.lower()).strip("_") or "kernel"
        return f"{stem}_{self.target}_v{self.version}.py"
