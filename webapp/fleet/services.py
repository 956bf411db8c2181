"""Writes to workers."""

from django.utils import timezone

from services.contracts import WorkerReport
from webapp.fleet.models import Worker


def record_worker(report: WorkerReport) -> None:
    """Keep what a worker says of itself."""
    Worker.objects.update_or_create(
        name=report.name,
        defaults={
            "queue": report.queue,
            "backend": report.backend or "",
            "isolation": report.isolation or "",
            "isolation_note": report.isolation_note,
            "model": report.model,
            "note": report.note,
            "versions": report.versions,
            "last_seen": timezone.now(),
        },
    )
