"""Settings of the inference service: the only place where it reads the environment."""

from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class InferenceSettings(BaseSettings):
    """Where the model is and how it is sampled; each field is read from INFERENCE_<NAME>.

    Without a base URL no model is configured, and only proposers without a model work.
    """

    model_config = SettingsConfigDict(env_prefix="inference_", extra="ignore", str_strip_whitespace=True)

    base_url: str = ""
    """An OpenAI-compatible server, e.g. http://127.0.0.1:8000/v1; /v1 is added where no path is given."""
    api_key: SecretStr = SecretStr("")
    """Sent as a bearer token; empty for servers that want none."""
    model: str = ""
    """Empty: the first model that the server lists."""
    ca_file: Path | None = None
    """PEM file of the authority that signed the server's certificate, where it is a private one."""

    temperature: float = Field(1.0, ge=0, le=2)
    """Spread of the samples; 0 makes samples of one turn alike."""
    top_p: float = Field(0.95, gt=0, le=1)
    """Share of the likeliest tokens that are sampled from."""
    max_tokens: int = Field(8192, ge=64)
    """Longest answer, in tokens."""
    context_tokens: int = Field(32768, ge=2048)
    """Prompt and answer together, in tokens: the model's context length, or less."""
    timeout_s: float = Field(300, gt=0)
    """Longest wait for one answer."""
    retries: int = Field(2, ge=0, le=10)
    """Further tries of one request after a broken connection, a timeout or a server error."""
    turn_limit_s: int = Field(900, gt=0, le=1500)
    """Longest work on one Turn with all its requests."""

    @field_validator("base_url")
    @classmethod
    def _is_http_url(cls, value: str) -> str:
        if not value:
            return ""
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError("must be a URL such as http://127.0.0.1:8000/v1")
        if parts.username or parts.password:
            raise ValueError("must hold no user or password: set INFERENCE_API_KEY")
        return value.rstrip("/") if parts.path.strip("/") else f"{parts.scheme}://{parts.netloc}/v1"

    @field_validator("api_key")
    @classmethod
    def _fits_a_header(cls, value: SecretStr) -> SecretStr:
        key = value.get_secret_value().strip()
        if not key.isascii() or any(character.isspace() or not character.isprintable() for character in key):
            raise ValueError("must be one word of printable ASCII: paste the key alone, on one line")
        return SecretStr(key)

    @field_validator("ca_file")
    @classmethod
    def _is_readable(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_file():
            raise ValueError("names no file")
        return value

    @property
    def configured(self) -> bool:
        """Whether there is a model to ask."""
        return bool(self.base_url)

    @property
    def host(self) -> str:
        """Host and port of the server, for messages: no path, user or password."""
        parts = urlsplit(self.base_url)
        return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname or ""


class SettingsError(ValueError):
    """Settings that cannot be used; the message names each variable and never its value."""


@lru_cache
def load_settings() -> InferenceSettings:
    """The settings from the environment. Raises SettingsError."""
    try:
        return InferenceSettings()
    except ValidationError as error:
        lacks = [f"INFERENCE_{str(item['loc'][0]).upper()}: {item['msg']}" for item in error.errors() if item["loc"]]
        raise SettingsError("; ".join(lacks)) from None
