"""Operators' pages of ops: to look, not to change."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from webapp.ops.models import Op


@admin.register(Op)
class OpAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Rows are written by services only."""

    list_display = (
        "name",
        "team",
        "owner",
        "state",
        "created_at",
    )
    list_filter = (
        "state",
        "policy",
    )
    search_fields = ("name",)
    list_select_related = True

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never by hand."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never by hand."""
        return False
