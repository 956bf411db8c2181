"""Operators' pages of workers: to look, not to change."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from webapp.fleet.models import Worker


@admin.register(Worker)
class WorkerAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Rows are written by services only."""

    list_display = (
        "name",
        "queue",
        "backend",
        "isolation",
        "last_seen",
    )
    list_filter = ("queue",)
    search_fields = ("name",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never by hand."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never by hand."""
        return False
