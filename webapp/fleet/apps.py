"""Workers."""

from django.apps import AppConfig


class FleetConfig(AppConfig):
    """Workers."""

    name = "webapp.fleet"
