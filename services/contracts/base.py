"""The base of every message."""

from pydantic import BaseModel, ConfigDict


class Message(BaseModel):
    """An immutable message; unknown fields are refused so that a version skew is seen at once."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=True, ser_json_inf_nan="strings")
