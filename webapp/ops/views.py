"""Pages of ops: the list, the upload, one op with its screening report."""

from typing import Any

from django.contrib import messages
from django.db.models import Count
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods

from services.contracts import Severity, TolerancePolicy
from webapp.accounts.selectors import can_write, get_visible, signed_in
from webapp.accounts.services import ensure_team
from webapp.codeview import Mark
from webapp.downloads import file_stem, python_file
from webapp.fleet.selectors import configured_model, living_workers, queue_for_target
from webapp.live import live_region
from webapp.ops import services
from webapp.ops.forms import POLICIES, OpForm, RunForm
from webapp.ops.models import Op
from webapp.ops.selectors import get_op, ops_for, samples
from webapp.ops.states import OpState
from webapp.paging import page_of, search_term
from webapp.posting import button
from webapp.runs.models import Strategy
from webapp.runs.selectors import runs_for
from webapp.runs.services import start_run
from webapp.runs.services.steps import CannotRun
from webapp.settings import ENV

_SEVERITY_LOOKS = {
    Severity.BLOCKER: ("red", "x"),
    Severity.WARNING: ("orange", "alert-triangle"),
    Severity.INFO: ("blue", "info-circle"),
}


@require_GET
def op_list(request: HttpRequest) -> HttpResponse:
    """The team's ops, by name and state."""
    rows = ops_for(request.user).annotate(run_count=Count("runs")).order_by("-pk")
    term, state = search_term(request), request.GET.get("state", "")
    if term:
        rows = rows.filter(name__icontains=term)
    if state in OpState.values:
        rows = rows.filter(state=state)
    filtered = bool(term or state)
    context = {"page": page_of(request, rows), "term": term, "state": state, "states": OpState, "filtered": filtered}
    return render(request, "ops/list.html", context | {"samples": samples()})


@require_http_methods(["GET", "HEAD", "POST"])
def op_new(request: HttpRequest) -> HttpResponse:
    """Upload an op: empty, from a sample (`?sample=`) or from another op (`?from=`)."""
    if request.method != "POST":
        return _op_form(request, OpForm(initial=_start_from(request)))
    form = OpForm(request.POST, request.FILES)
    if not form.is_valid():
        form.keep_text()
        return _op_form(request, form, status=422)
    user = signed_in(request)
    data = form.cleaned_data
    op = services.create_op(
        ensure_team(user),
        user,
        data["name"],
        data["source"],
        target=data["target"],
        policy=TolerancePolicy(data["policy"]),
    )
    return redirect("op", op.pk)


def _op_form(request: HttpRequest, form: OpForm, status: int = 200) -> HttpResponse:
    context = {
        "form": form,
        "policies": [(policy.value, *text) for policy, text in POLICIES.items()],
        "samples": samples(),
        "max_bytes": ENV.max_source_bytes,
    }
    return render(request, "ops/new.html", context, status=status)


def _start_from(request: HttpRequest) -> dict[str, Any]:
    if slug := request.GET.get("sample"):
        sample = next((sample for sample in samples() if sample.slug == slug), None)
        if sample is None:
            raise Http404
        return {"name": sample.slug, "source": sample.source}
    if (pk := request.GET.get("from", "")[:18]).isdecimal():
        op = get_op(request.user, int(pk))
        return {"name": op.name, "source": op.source, "policy": op.policy, "target": op.target}
    return {}


@require_GET
def op_page(request: HttpRequest, pk: int) -> HttpResponse:
    """One op: screening report, source, facts, runs."""
    op = get_op(request.user, pk)
    return render(request, "ops/detail.html", _op_context(request, op, RunForm(initial=_run_defaults(op))))


def _version(request: HttpRequest, pk: int) -> int:
    return get_visible(Op.objects.only("version"), request.user, pk).version


@require_GET
@live_region(_version)
def op_live(request: HttpRequest, pk: int) -> HttpResponse:
    """The part of an op's page that changes while it is screened."""
    op = get_op(request.user, pk)
    return render(
        request,
        "ops/detail.html#live",
        _op_context(request, op, RunForm(initial=_run_defaults(op))) | {"partial": True},
    )


def _run_defaults(op: Op) -> dict[str, Any]:
    return {"target": op.target, "strategy": Strategy.SEED_THEN_MODEL, "max_turns": 4}


def _op_context(request: HttpRequest, op: Op, form: RunForm) -> dict[str, Any]:
    report = op.report
    findings = report.by_severity if report else []
    queue = queue_for_target(op.target)
    return {
        "op": op,
        "report": report,
        "findings": [(finding, *_SEVERITY_LOOKS[finding.severity]) for finding in findings],
        "marks": {
            finding.line: Mark(finding.title, f"#finding-{index}", bad=finding.severity is Severity.BLOCKER)
            for index, finding in enumerate(findings, 1)
            if finding.line
        },
        "form": form,
        "model": configured_model(),
        "policy_words": POLICIES[TolerancePolicy(op.policy)],
        "blocked": _why_blocked(op),
        "writes": can_write(request.user, op.team),
        "runs": runs_for(request.user).filter(op=op).prefetch_related("best__evaluations")[:10],
        "run_count": runs_for(request.user).filter(op=op).count(),
        "no_worker": op.is_active and not living_workers().filter(queue=queue).exists(),
    }


def _why_blocked(op: Op) -> str:
    """Why no run can start; empty where it can."""
    match op.state:
        case OpState.READY:
            return ""
        case OpState.REFUSED:
            return "Screening refused this op. Change what the findings say and upload it again."
        case OpState.ERRORED:
            return "Screening had a fault of its own. Screen it again."
    return "Screening is not done yet."


@button
def op_optimise(request: HttpRequest, pk: int) -> HttpResponse:
    """Start a run; on an error the page comes back with what was chosen."""
    op = get_op(request.user, pk, write=True)
    form = RunForm(request.POST)
    if form.is_valid():
        data = form.cleaned_data
        try:
            run = start_run(
                op,
                signed_in(request),
                strategy=Strategy(data["strategy"]),
                target=data["target"],
                max_turns=data["max_turns"],
            )
        except CannotRun as error:
            form.add_error(None, str(error))
        else:
            return redirect("run", run.pk)
    return render(request, "ops/detail.html", _op_context(request, op, form), status=422)


@button
def op_screen(request: HttpRequest, pk: int) -> HttpResponse:
    """Screen an op once more."""
    op = get_op(request.user, pk, write=True)
    if not services.screen_again(op):
        messages.info(request, "This op is being screened already.")
    return redirect("op", op.pk)


@require_GET
def op_source(request: HttpRequest, pk: int) -> HttpResponse:
    """The op's source as a file."""
    op = get_op(request.user, pk)
    return python_file(op.source, f"{file_stem(op.name)}.py")
