"""Workers that serve queues."""

from datetime import timedelta
from typing import Any, ClassVar

from django.db import models
from django.utils import timezone

ALIVE_FOR = timedelta(seconds=90)
"""Workers report every 30 s."""


class Worker(models.Model):
    """A process that serves one queue, as it last reported itself."""

    name = models.CharField(max_length=200, unique=True)
    queue = models.CharField(max_length=60)
    backend = models.CharField(max_length=8, blank=True)
    isolation = models.CharField(max_length=8, blank=True)
    isolation_note = models.TextField(blank=True)
    model = models.CharField(max_length=200, blank=True)
    note = models.TextField(blank=True)
    versions: Any = models.JSONField(default=dict)
    first_seen = models.DateTimeField(auto_now_add=True)
    last_seen = models.DateTimeField()

    class Meta:
        ordering: ClassVar = ["queue", "name"]

    def __str__(self) -> str:
        return self.name

    @property
    def is_alive(self) -> bool:
        """Whether it reported lately."""
        return self.last_seen > timezone.now() - ALIVE_FOR
