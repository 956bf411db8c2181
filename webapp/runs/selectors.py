"""Reads of runs."""

from django.contrib.auth.models import AnonymousUser
from django.db.models import Prefetch, QuerySet

from webapp.accounts.models import User
from webapp.accounts.selectors import get_visible, visible
from webapp.runs.models import Candidate, Evaluation, Run, Turn


def runs_for(user: User | AnonymousUser) -> QuerySet[Run]:
    """Runs of the user's teams, newest first."""
    rows = Run.objects.select_related("op", "owner").defer("op__source", "op__graph_json", "op__report_json")
    return visible(rows, user, team="op__team")


def get_run(user: User | AnonymousUser, pk: int, *, write: bool = False) -> Run:
    """One run that the user may see; 404 else."""
    rows = Run.objects.select_related("op__team", "owner", "best").defer("op__graph_json")
    return get_visible(rows, user, pk, team="op__team", write=write)


def turns_of(run: Run) -> list[Turn]:
    """A run's turns with their candidates and evaluations, in three queries, without the large texts."""
    candidates = Candidate.objects.defer("source", "answer").prefetch_related(
        Prefetch("evaluations", queryset=Evaluation.objects.order_by("pk"))
    )
    return list(run.turns.defer("prompt_json").prefetch_related(Prefetch("candidates", queryset=candidates)))


def get_candidate(user: User | AnonymousUser, pk: int) -> Candidate:
    """One candidate that the user may see, with its run and op; 404 else."""
    rows = Candidate.objects.select_related("turn__run__op__team").defer("turn__run__op__graph_json")
    return get_visible(rows.prefetch_related("evaluations"), user, pk, team="turn__run__op__team")
