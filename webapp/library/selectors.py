"""Reads of the library."""

from django.contrib.auth.models import AnonymousUser
from django.db.models import QuerySet

from webapp.accounts.models import User
from webapp.accounts.selectors import get_visible, visible
from webapp.library.models import Kernel


def kernels_for(user: User | AnonymousUser) -> QuerySet[Kernel]:
    """Kernels of the user's teams, newest first."""
    return visible(Kernel.objects.select_related("op", "team", "evaluation").defer("source"), user)


def get_kernel(user: User | AnonymousUser, pk: int) -> Kernel:
    """One kernel that the user may see; 404 else."""
    rows = Kernel.objects.select_related("op", "team", "evaluation", "candidate__turn__run")
    return get_visible(rows, user, pk)
