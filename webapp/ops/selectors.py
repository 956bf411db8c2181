"""Reads of ops."""

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from django.contrib.auth.models import AnonymousUser
from django.db.models import QuerySet

from services.contracts import AtenGraph
from webapp.accounts.models import User
from webapp.accounts.selectors import get_visible, visible
from webapp.ops.models import Op

SAMPLES_DIR = Path(__file__).parent / "samples"


@dataclass(frozen=True)
class Sample:
    """An op that comes with Warpsmith, to start from."""

    slug: str
    title: str
    source: str


@cache
def samples() -> tuple[Sample, ...]:
    """The sample ops, by name; the title is the first line of the module's docstring."""
    found = []
    for path in sorted(SAMPLES_DIR.glob("[a-z]*.py")):
        source = path.read_text()
        title = (ast.get_docstring(ast.parse(source)) or path.stem).splitlines()[0].rstrip(".")
        found.append(Sample(slug=path.stem, title=title, source=source))
    return tuple(found)


def ops_for(user: User | AnonymousUser) -> QuerySet[Op]:
    """Ops of the user's teams, newest first, without their large fields."""
    return visible(Op.objects.select_related("owner", "team"), user).defer("source", "graph_json", "report_json")


def get_op(user: User | AnonymousUser, pk: int, *, write: bool = False) -> Op:
    """One op that the user may see; 404 else."""
    return get_visible(Op.objects.select_related("owner", "team").defer("graph_json"), user, pk, write=write)


def graph_of(op: Op) -> AtenGraph | None:
    """The op's ATen graph as screening traced it."""
    return AtenGraph.model_validate(op.graph_json) if op.graph_json else None
