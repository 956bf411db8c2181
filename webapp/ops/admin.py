"""Operators' pages of ops: to look, not to change."""

from django.contrib import admin

from webapp.operators import ReadOnlyAdmin
from webapp.ops.models import Op


@admin.register(Op)
class OpAdmin(ReadOnlyAdmin):
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
