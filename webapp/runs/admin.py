"""Operators' pages of runs: to look, not to change."""

from django.contrib import admin

from webapp.operators import ReadOnlyAdmin
from webapp.runs.models import Run


@admin.register(Run)
class RunAdmin(ReadOnlyAdmin):
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
