"""The page of workers."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from services.broker import HOST_QUEUE, INFERENCE_QUEUE
from webapp.fleet.models import Worker
from webapp.fleet.selectors import living_workers
from webapp.paging import page_of


@require_GET
def fleet(request: HttpRequest) -> HttpResponse:
    """Every worker as it last reported itself, those of lately first; kinds of worker that are missing."""
    alive = set(living_workers().values_list("queue", flat=True))
    missing = [queue for queue in (HOST_QUEUE, INFERENCE_QUEUE) if queue not in alive]
    page = page_of(request, Worker.objects.order_by("-last_seen"))
    return render(request, "fleet/list.html", {"page": page, "missing": missing})
