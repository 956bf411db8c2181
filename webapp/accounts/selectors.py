"""Who may see and change what: the one place that decides."""

from typing import TypeVar

from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest

from webapp.accounts.models import WRITERS, Team, User

Row = TypeVar("Row", bound=Model)


def visible(rows: "QuerySet[Row]", user: User | AnonymousUser, team: str = "team") -> "QuerySet[Row]":
    """The rows that belong to the user's teams; `team` is the lookup path to the owning Team."""
    return rows.filter(**{f"{team}__in": Team.objects.filter(memberships__user_id=user.pk or 0)})


def get_visible(
    rows: "QuerySet[Row]", user: User | AnonymousUser, pk: int, team: str = "team", *, write: bool = False
) -> Row:
    """One visible row; 404 for a stranger, and for a viewer where `write` is asked."""
    found = visible(rows, user, team)
    if write:
        writable = Team.objects.filter(memberships__user_id=user.pk or 0, memberships__role__in=WRITERS)
        found = found.filter(**{f"{team}__in": writable})
    row = found.filter(pk=pk).first()
    if row is None:
        raise Http404
    return row


def can_write(user: User | AnonymousUser, team: Team) -> bool:
    """Whether the user may upload, run and cancel in the team."""
    return team.memberships.filter(user_id=user.pk or 0, role__in=WRITERS).exists()


def signed_in(request: HttpRequest) -> User:
    """The user of a page that strangers never reach. Raises PermissionDenied where one does."""
    if not isinstance(request.user, User):
        raise PermissionDenied
    return request.user
