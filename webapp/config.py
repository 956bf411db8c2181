"""The web's environment: the only place that reads it."""

import secrets
from pathlib import Path
from typing import Annotated

from django.core.exceptions import ImproperlyConfigured
from pydantic import BeforeValidator, Field, SecretStr
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

BASE_DIR = Path(__file__).resolve().parent.parent


def _split(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


CommaList = Annotated[list[str], NoDecode, BeforeValidator(_split)]


class WebSettings(BaseSettings):
    """Every setting of the web processes. Durations in seconds, sizes in bytes."""

    model_config = SettingsConfigDict(env_file=BASE_DIR / ".env", extra="ignore")

    debug: bool = False
    """Django's debug pages, which show source and settings: never where others can reach the web."""
    demo: bool = False
    """Shows the demo login on the sign-in page; set by `manage.py demo`."""
    warpsmith_home: Path = BASE_DIR / "var"
    """State of a one-machine installation: database, broker, logs, secret."""
    secret_key: SecretStr | None = None
    """Signs sessions. Unset: made once in the state folder; the same on all web machines otherwise."""
    allowed_hosts: CommaList = ["localhost", "127.0.0.1", "[::1]"]
    """Host names under which the web answers; with another one a browser gets 400."""
    csrf_trusted_origins: CommaList = []
    """Further origins whose forms are taken, e.g. https://warpsmith.example, where a proxy changes the host."""
    https: bool = False
    """Secure cookies and HSTS: set it where TLS ends in front of the web."""
    database_url: str = ""
    """Empty: SQLite in the state folder."""
    default_target: str = "h200"
    """GPU that forms and commands offer first: h200, h100, a100 or b200."""

    max_source_bytes: int = Field(1_000_000, gt=0)
    """Largest source of an op."""
    max_attempts: int = Field(3, gt=0)
    """How often work whose worker died is tried again."""
    queued_lease_s: float = Field(600, gt=0)
    """A message not taken within it is sent again."""
    working_lease_s: float = Field(45, gt=0)
    """Workers renew it every 10 s; a dead worker's work starts again after it."""
    recover_every_s: float = Field(5, gt=0)
    """How often lost work is looked for."""


def local_secret_path(settings: WebSettings) -> Path:
    """Where a one-machine installation keeps its secret key."""
    return settings.warpsmith_home / "secret-key"


def ensure_local_secret() -> None:
    """Make the state folder and the local secret key on first use of manage.py, readable by their owner only."""
    settings = WebSettings()
    path = local_secret_path(settings)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if settings.secret_key is None and not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(50))


def secret_key(settings: WebSettings) -> str:
    """The secret key: SECRET_KEY, else the local one. Raises ImproperlyConfigured where there is neither."""
    if settings.secret_key is not None:
        return settings.secret_key.get_secret_value()
    path = local_secret_path(settings)
    if path.exists() and (key := path.read_text().strip()):
        return key
    raise ImproperlyConfigured(
        "SECRET_KEY is not set. Set it in the environment to a long random text, or run any `manage.py` command "
        f"once on this machine to have one made in {path}."
    )
