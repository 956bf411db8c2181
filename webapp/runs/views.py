"""Pages of runs: the list, one run live, one candidate."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET

from services.broker import INFERENCE_QUEUE
from services.contracts import Evaluation as EvaluationMessage
from services.contracts import Proposer, Verdict, target_spec
from webapp.accounts.selectors import can_write, get_visible, signed_in
from webapp.accounts.templatetags.look import verdict_look
from webapp.codeview import Mark
from webapp.downloads import file_stem, python_file
from webapp.fleet.selectors import configured_model, living_workers, queue_for_target
from webapp.library.models import Kernel
from webapp.live import live_region
from webapp.ops.forms import STRATEGIES
from webapp.paging import page_of, search_term
from webapp.posting import button
from webapp.runs import services
from webapp.runs.charts import speedup_chart
from webapp.runs.models import Candidate, Run, Strategy
from webapp.runs.selectors import get_candidate, get_run, runs_for, turns_of
from webapp.runs.services.steps import CannotRun
from webapp.runs.states import RunState, TurnState
from webapp.runs.timeline import TurnRow, best_of, duration_seconds, timeline


@require_GET
def run_list(request: HttpRequest) -> HttpResponse:
    """The team's runs, by op and state."""
    rows = runs_for(request.user).prefetch_related("best__evaluations")
    term, state = search_term(request), request.GET.get("state", "")
    if term:
        rows = rows.filter(op__name__icontains=term)
    if state in RunState.values:
        rows = rows.filter(state=state)
    context = {"page": page_of(request, rows), "term": term, "state": state, "states": RunState}
    return render(request, "runs/list.html", context | {"filtered": bool(term or state)})


@require_GET
def run_page(request: HttpRequest, pk: int) -> HttpResponse:
    """One run."""
    return render(request, "runs/detail.html", _run_context(request, get_run(request.user, pk)))


def _version(request: HttpRequest, pk: int) -> int:
    return get_visible(Run.objects.only("version"), request.user, pk, "op__team").version


@require_GET
@live_region(_version)
def run_live(request: HttpRequest, pk: int) -> HttpResponse:
    """The part of a run's page that changes."""
    return render(request, "runs/detail.html#live", _run_context(request, get_run(request.user, pk)))


def _run_context(request: HttpRequest, run: Run) -> dict[str, Any]:
    rows = timeline(turns_of(run))
    best = best_of(row for turn in rows for row in turn.rows)
    return {
        "run": run,
        "gpu": target_spec(run.target),
        "turns": rows,
        "chart": speedup_chart(rows),
        "best": best,
        "winner": _winner(run) if run.state == RunState.PASSED else None,
        "took": duration_seconds(run),
        "strategy": STRATEGIES[Strategy(run.strategy)],
        "writes": can_write(request.user, run.op.team),
        "missing": _missing_queue(run, rows),
        "no_model": run.state == RunState.FAILED and not configured_model(),
    }


def _missing_queue(run: Run, rows: list[TurnRow]) -> str:
    """The queue that the run waits for while no living worker serves it; empty otherwise."""
    if not run.is_active:
        return ""
    proposing = not rows or rows[-1].turn.state in {TurnState.PROPOSING, TurnState.WAITING}
    queue = INFERENCE_QUEUE if proposing else queue_for_target(run.target)
    return "" if living_workers().filter(queue=queue).exists() else queue


def _winner(run: Run) -> dict[str, Any] | None:
    """The best candidate of a passed run, with its evidence in short and the library's kernel."""
    if run.best is None:
        return None
    evaluation = run.best.evaluations.first()
    if evaluation is None:
        return None
    report = evaluation.report
    kernels = Kernel.objects.filter(op_id=run.op_id, target=run.target).defer("source")
    kernel = kernels.filter(source_sha256=run.best.source_sha256).first()
    return {
        "candidate": run.best,
        "evaluation": evaluation,
        "report": report,
        "families": sum(family.passed for family in report.families),
        "kernel": kernel,
        "better": None if kernel else kernels.order_by("-version").first(),
    }


@button
def run_cancel(request: HttpRequest, pk: int) -> HttpResponse:
    """Stop a run after the step in hand."""
    run = get_run(request.user, pk, write=True)
    if not services.cancel_run(run):
        messages.info(request, "This run is over already, or is being stopped.")
    return redirect("run", run.pk)


@button
def run_retry(request: HttpRequest, pk: int) -> HttpResponse:
    """A new run with the same settings."""
    run = get_run(request.user, pk, write=True)
    try:
        again = services.retry_run(run, signed_in(request))
    except CannotRun as error:
        messages.error(request, str(error))
        return redirect("run", run.pk)
    return redirect("run", again.pk)


@require_GET
def candidate_page(request: HttpRequest, pk: int) -> HttpResponse:
    """One candidate: verdict, code, evidence, feedback, prompt and answer."""
    candidate = get_candidate(request.user, pk)
    evaluation = next(iter(candidate.evaluations.all()), None)
    report = evaluation.report if evaluation else None
    run = candidate.turn.run
    context: dict[str, Any] = {
        "candidate": candidate,
        "turn": candidate.turn,
        "run": run,
        "gpu": target_spec(run.target),
        "evaluation": evaluation,
        "report": report,
        "by_model": candidate.turn.proposer == Proposer.LLM,
        "kernel": Kernel.objects.filter(candidate=candidate).defer("source").first(),
    }
    if report:
        colour, icon = verdict_look(report.verdict)
        context |= {"colour": colour, "icon": icon, "marks": _marks(report), "ours": report.verdict.fault == "ours"}
        context["families_run"] = [family for family in report.families if not family.skipped]
        context["families_skipped"] = [family for family in report.families if family.skipped]
        context["passed"] = report.verdict is Verdict.PASSED
    return render(request, "runs/candidate.html", context)


def _marks(report: EvaluationMessage) -> dict[int, Mark]:
    """Lint hints and the error beside their lines; the error wins."""
    marks = {finding.line: Mark(finding.message, "#lint") for finding in report.lint if finding.line}
    if report.error and report.error.line:
        marks[report.error.line] = Mark(f"{report.error.kind}: {report.error.message}"[:300], "#error", bad=True)
    return marks


@require_GET
def candidate_source(request: HttpRequest, pk: int) -> HttpResponse:
    """The candidate's source as a file."""
    candidate: Candidate = get_candidate(request.user, pk)
    stem = f"{file_stem(candidate.turn.run.op.name)}_{candidate.turn.run.target}"
    return python_file(candidate.source, f"{stem}_run{candidate.turn.run_id}_turn{candidate.turn.index}.py")
