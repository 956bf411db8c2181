"""Operators' pages of users and teams."""

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin

from webapp.accounts.models import Membership, Team, User

admin.site.register(User, UserAdmin)


class MembershipInline(admin.TabularInline):  # type: ignore[type-arg]
    """A team's members on its page."""

    model = Membership
    extra = 1
    autocomplete_fields = ("user",)


@admin.register(Team)
class TeamAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Teams and who is in them."""

    list_display = (
        "name",
        "slug",
    )
    prepopulated_fields = {"slug": ("name",)}  # noqa: RUF012
    inlines = (MembershipInline,)
