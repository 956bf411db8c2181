"""Icons, states and verdicts: always colour, icon and word together."""

from typing import Any

from django import template
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString

from services.contracts import Fault, Verdict
from webapp.states import StatefulModel

register = template.Library()

TURNING = frozenset({"loader"})
_FAULT_LOOKS = {
    Fault.NOBODY: ("green", "check"),
    Fault.CANDIDATE: ("red", "x"),
    Fault.OP: ("orange", "alert-triangle"),
    Fault.OURS: ("orange", "alert-triangle"),
}


@register.simple_tag
def icon(name: str, css: str = "") -> SafeString:
    """One icon of the vendored sprite; decoration only, the word stands beside it."""
    turning = " turning" if name in TURNING else ""
    return format_html(
        '<svg class="icon{}{}" aria-hidden="true"><use href="{}#{}"/></svg>',
        turning,
        f" {css}" if css else "",
        static("vendor/icons.svg"),
        name,
    )


@register.simple_tag
def state(row: StatefulModel) -> SafeString:
    """The row's state as icon and word in its colour."""
    colour, name = row.look
    label: Any = row.get_state_display()  # type: ignore[attr-defined]
    return format_html('<span class="state is-{}">{} {}</span>', colour, icon(name), label)


def verdict_look(verdict: Verdict) -> tuple[str, str]:
    """Badge colour and icon of a verdict: red is the kernel's fault, orange is not."""
    return _FAULT_LOOKS[verdict.fault]


@register.simple_tag
def verdict(value: str) -> SafeString:
    """A verdict as icon and word in the colour of whose fault it is."""
    found = Verdict(value)
    colour, name = verdict_look(found)
    return format_html('<span class="state is-{}">{} {}</span>', colour, icon(name), found.label)


@register.inclusion_tag("includes/speedup.html")
def speedup(evaluation: Any, *, baseline: bool = True) -> dict[str, Any]:
    """An Evaluation's speedup against eager, measured or predicted, never one looking like the other."""
    if not evaluation or evaluation.speedup is None:
        return {"value": None}
    return {
        "value": evaluation.speedup,
        "kind": "measured" if evaluation.measured_speedup is not None else "predicted",
        "baseline": baseline,
    }


@register.inclusion_tag("includes/isolation.html")
def isolation(level: str, note: str = "") -> dict[str, str]:
    """How the candidate was shut in, as a badge."""
    return {"level": level, "note": note}
