"""Runs, turns, candidates and evaluations."""

from django.apps import AppConfig


class RunsConfig(AppConfig):
    """Runs, turns, candidates and evaluations."""

    name = "webapp.runs"
