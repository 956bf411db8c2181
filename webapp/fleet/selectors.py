"""Reads of workers."""

from django.db.models import QuerySet
from django.utils import timezone

from services.broker import HOST_QUEUE, INFERENCE_QUEUE, sandbox_queue
from webapp.fleet.models import ALIVE_FOR, Worker


def living_workers() -> QuerySet[Worker]:
    """Workers that reported lately."""
    return Worker.objects.filter(last_seen__gt=timezone.now() - ALIVE_FOR)


def queue_for_target(target: str) -> str:
    """The queue of a living sandbox worker that holds this GPU, else the host backend's."""
    queue = sandbox_queue(target)
    return queue if living_workers().filter(queue=queue).exists() else HOST_QUEUE


def configured_model() -> str:
    """The model that a living inference worker serves; empty where none is configured."""
    worker = living_workers().filter(queue=INFERENCE_QUEUE).exclude(model="").order_by("-last_seen").first()
    return worker.model if worker else ""
