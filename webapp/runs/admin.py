"""Operators' pages of runs: to look, not to change."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from webapp.runs.models import Run


@admin.register(Run)
class RunAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Rows are written by services only."""

    list_display = (
        "id",
        "op",
        "owner",
        "state",
        "strategy",
        "target",
        "created_at",
    )
    list_filter = (
        "state",
        "strategy",
        "target",
    )
    search_fields = ("op__name",)
    list_select_related = True

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never by hand."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never by hand."""
        return False
