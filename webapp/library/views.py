"""Pages of the library."""

from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from services.contracts import target_spec
from webapp.downloads import python_file
from webapp.library.models import Kernel
from webapp.library.selectors import get_kernel, kernels_for
from webapp.paging import page_of, search_term


@require_GET
def kernel_list(request: HttpRequest) -> HttpResponse:
    """The team's kernels, by name and GPU."""
    everything = kernels_for(request.user)
    rows = everything
    term, target = search_term(request), request.GET.get("target", "")[:20].replace("\x00", "")
    if term:
        rows = rows.filter(name__icontains=term)
    if target:
        rows = rows.filter(target=target)
    facets = everything.order_by("target").values_list("target").annotate(count=Count("pk"))
    context = {"page": page_of(request, rows), "term": term, "target": target, "facets": facets}
    return render(request, "library/list.html", context | {"filtered": bool(term or target)})


@require_GET
def kernel_page(request: HttpRequest, pk: int) -> HttpResponse:
    """One kernel: how to use it, its evidence in short, where it comes from, its other versions."""
    kernel = get_kernel(request.user, pk)
    versions = kernels_for(request.user).filter(op=kernel.op_id, target=kernel.target).order_by("-version")
    report = kernel.evaluation.report
    context = {
        "kernel": kernel,
        "gpu": target_spec(kernel.target),
        "evaluation": kernel.evaluation,
        "report": report,
        "families": sum(family.passed for family in report.families),
        "candidate": kernel.candidate,
        "turn": kernel.candidate.turn,
        "run": kernel.candidate.turn.run,
        "versions": versions[:20],
        "module": kernel.file_name.removesuffix(".py"),
    }
    return render(request, "library/detail.html", context)


@require_GET
def kernel_source(request: HttpRequest, pk: int) -> HttpResponse:
    """The kernel as a file: exactly the bytes that were judged."""
    kernel: Kernel = get_kernel(request.user, pk)
    return python_file(kernel.source, kernel.file_name)
