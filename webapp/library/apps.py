"""The team's kernels."""

from django.apps import AppConfig


class LibraryConfig(AppConfig):
    """The team's kernels."""

    name = "webapp.library"
