"""Messages of services at the web's border: validated, and without what databases and pages refuse."""

import re
from typing import Any, TypeVar

from services.contracts import Message

M = TypeVar("M", bound=Message)

_REFUSED = re.compile("[\0\ud800-\udfff]")


def received(kind: type[M], message: dict[str, Any]) -> M:
    """The message. Text of user code (an exception's, a name) may hold anything: see `storable`."""
    return kind.model_validate(storable(message))


def storable(value: Any) -> Any:
    """The same JSON; NUL, which PostgreSQL refuses, and lone surrogates, which are no UTF-8, become U+FFFD."""
    if isinstance(value, str):
        return _REFUSED.sub("\ufffd", value)
    if isinstance(value, dict):
        return {storable(key): storable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [storable(item) for item in value]
    return value
