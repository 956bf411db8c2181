"""Uploaded ops and their screening."""

from django.apps import AppConfig


class OpsConfig(AppConfig):
    """Uploaded ops and their screening."""

    name = "webapp.ops"
