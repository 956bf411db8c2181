"""Users and teams."""

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    """Users and teams."""

    name = "webapp.accounts"
