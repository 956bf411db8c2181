"""Figures as people read them: a unit, at most three significant digits."""

import math
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import wraps

from django import template
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()

DASH = "–"


def figure(convert: Callable[[float], str]) -> Callable[[object], str]:
    """Register a filter for numbers; whatever is no number (None, an attribute of None) shows as a dash."""

    @wraps(convert)
    def shown(value: object) -> str:
        if not isinstance(value, int | float):
            return DASH
        return convert(value) if math.isfinite(value) else str(value)

    register.filter(convert.__name__, shown)
    return shown


def three_digits(value: float) -> str:
    """A number in at most three significant digits, without an exponent, e.g. 0.0123, 2.4, 1230."""
    if value == 0:
        return "0"
    decimals = 2 - math.floor(math.log10(abs(value)))
    text = f"{round(value, decimals):.{max(decimals, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _scaled(value: float, steps: Sequence[tuple[float, str]]) -> str:
    """The value in the largest unit that keeps it at or above 1; rounding never shows 1000 of a smaller unit."""
    size, unit = next((step for step in steps if abs(value) >= step[0] * 0.9995), steps[-1])
    return f"{three_digits(value / size)} {unit}"


@figure
def seconds(value: float) -> str:
    """A duration given in seconds, e.g. "12.3 ms", "1.25 s", "2 min 5 s"."""
    if value >= 59.95:
        minutes, rest = divmod(round(value), 60)
        return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
    return _scaled(value, [(1, "s"), (1e-3, "ms"), (1e-6, "µs")])


@figure
def micros(value: float) -> str:
    """A time given in microseconds, e.g. "12.3 µs", "1.25 ms"."""
    return seconds(value * 1e-6)


@figure
def times(value: float) -> str:
    """A speedup, e.g. "2.43×", "12.4×", "1230×"."""
    return f"{value:.2f}×" if value < 9.995 else f"{value:.1f}×" if value < 99.95 else f"{three_digits(value)}×"


@figure
def data_size(value: float) -> str:
    """Bytes in decimal units, as memory bandwidth counts them, e.g. "4.19 MB"."""
    return _scaled(value, [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")])


@figure
def flop_count(value: float) -> str:
    """Floating point operations, e.g. "1.07 GFLOP"."""
    return _scaled(value, [(1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1e3, "kFLOP"), (1, "FLOP")])


@figure
def count(value: float) -> str:
    """A count that may be large, e.g. "16.8 M"."""
    return _scaled(value, [(1e9, "G"), (1e6, "M"), (1e3, "k")]) if value >= 10_000 else str(value)


@figure
def relative(value: float) -> str:
    """A relative error, e.g. "2.81e-05"."""
    return "0" if value == 0 else f"{value:.2e}"


@register.simple_tag
def since(moment: datetime) -> SafeString:
    """The time that has gone by since then; scripts let it tick."""
    gone = max(0, math.floor((timezone.now() - moment).total_seconds()))
    text = seconds(gone) if gone else "0 s"
    return format_html('<time data-since="{}">{}</time>', moment.isoformat(), text)
