"""Operators' pages of kernels: to look, not to change."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from webapp.library.models import Kernel


@admin.register(Kernel)
class KernelAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Rows are written by services only."""

    list_display = (
        "name",
        "version",
        "target",
        "team",
        "verified",
        "created_at",
    )
    list_filter = (
        "target",
        "verified",
    )
    search_fields = ("name",)
    list_select_related = True

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never by hand."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never by hand."""
        return False
