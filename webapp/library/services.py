"""Writes to the library."""

from django.db import transaction
from django.db.models import Max

from webapp.library.models import Kernel
from webapp.runs.models import Candidate, Evaluation


@transaction.atomic
def publish_winner(candidate: Candidate, evaluation: Evaluation) -> Kernel:
    """Keep a run's winner: a new version where it is better than the op's current kernel for this target.

    The same source, or a slower one, leaves the library as it is and gives the current kernel.
    """
    run = candidate.turn.run
    versions = Kernel.objects.filter(op=run.op, target=evaluation.target)
    current = versions.select_related("evaluation").order_by("-version").first()
    if current and (
        current.source_sha256 == candidate.source_sha256
        or (current.evaluation.speedup or 0) >= (evaluation.speedup or 0)
    ):
        return current
    latest = versions.aggregate(latest=Max("version"))["latest"] or 0
    return Kernel.objects.create(
        team=run.op.team,
        op=run.op,
        name=run.op.name,
        target=evaluation.target,
        version=latest + 1,
        source=candidate.source,
        source_sha256=candidate.source_sha256,
        candidate=candidate,
        evaluation=evaluation,
    )
