"""The first page, and the pages of errors."""

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from webapp.fleet.selectors import living_workers
from webapp.library.selectors import kernels_for
from webapp.ops.selectors import ops_for, samples
from webapp.runs.selectors import runs_for


@require_GET
def home(request: HttpRequest) -> HttpResponse:
    """What went on lately; on an empty installation, one action and the sample ops."""
    context = {
        "runs": runs_for(request.user).prefetch_related("best__evaluations")[:8],
        "kernels": kernels_for(request.user)[:6],
        "ops": ops_for(request.user)[:6],
        "samples": samples(),
        "no_sandbox": not living_workers().filter(queue__startswith="sandbox.").exists(),
    }
    return render(request, "home.html", context)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """A request that Django itself refused, most often because it is too large."""
    too_big = isinstance(exception, RequestDataTooBig)
    return render(request, "400.html", {"too_big": too_big}, status=413 if too_big else 400)
