"""Source code on a page."""

from collections.abc import Mapping
from typing import Any

from django import template

from webapp.codeview import LINES_LIMIT, Mark, lines_of

register = template.Library()


@register.inclusion_tag("includes/code.html")
def code(source: str, marks: Mapping[int, Mark] | None = None, *, tall: bool = False) -> dict[str, Any]:
    """Source with line anchors `#L12`, marked lines and their notes."""
    hidden = max(0, len(source.rstrip("\n").split("\n")) - LINES_LIMIT)
    return {"lines": lines_of(source, marks), "tall": tall, "hidden": hidden}
