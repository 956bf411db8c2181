"""Operators' pages of workers: to look, not to change."""

from django.contrib import admin

from webapp.fleet.models import Worker
from webapp.operators import ReadOnlyAdmin


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    list_display = (
        "name",
        "queue",
        "backend",
        "isolation",
        "last_seen",
    )
    list_filter = ("queue",)
    search_fields = ("name",)
