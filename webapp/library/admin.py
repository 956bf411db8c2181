"""Operators' pages of kernels: to look, not to change."""

from django.contrib import admin

from webapp.library.models import Kernel
from webapp.operators import ReadOnlyAdmin


@admin.register(Kernel)
class KernelAdmin(ReadOnlyAdmin):
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
