"""Figures as people read them: a unit, at most three significant digits."""

import math
from collections.abc import Sequence

from django import template

register = template.Library()

DASH = "–"


def three_digits(value: float) -> str:
    """A number in at most three significant digits, without an exponent, e.g. 0.0123, 2.4, 1230."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    decimals = 2 - math.floor(math.log10(abs(value)))
    rounded = round(value, decimals)
    text = f"{rounded:.{max(decimals, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _scaled(value: float, steps: Sequence[tuple[float, str]]) -> str:
    """The value in the largest unit that keeps it at or above 1; rounding never shows 1000 of a smaller unit."""
    for size, unit in steps[:-1]:
        if abs(value) >= size * 0.9995:
            return f"{three_digits(value / size)} {unit}"
    size, unit = steps[-1]
    return f"{three_digits(value / size)} {unit}"


@register.filter
def seconds(value: float | None) -> str:
    """A duration given in seconds, e.g. "12.3 ms", "1.25 s", "2 min 5 s"."""
    if value is None:
        return DASH
    if value >= 59.95:
        minutes, rest = divmod(round(value), 60)
        return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
    return _scaled(value, [(1, "s"), (1e-3, "ms"), (1e-6, "µs")])


@register.filter
def micros(value: float | None) -> str:
    """A time given in microseconds, e.g. "12.3 µs", "1.25 ms"."""
    return DASH if value is None else seconds(value * 1e-6)


@register.filter
def times(value: float | None) -> str:
    """A speedup, e.g. "2.43×", "12.4×", "1230×"."""
    if value is None:
        return DASH
    return f"{value:.2f}×" if value < 9.995 else f"{value:.1f}×" if value < 99.95 else f"{three_digits(value)}×"


@register.filter
def data_size(value: float | None) -> str:
    """Bytes in decimal units, as memory bandwidth counts them, e.g. "4.19 MB"."""
    if value is None:
        return DASH
    return _scaled(value, [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")])


@register.filter
def flop_count(value: float | None) -> str:
    """Floating point operations, e.g. "1.07 GFLOP"."""
    if value is None:
        return DASH
    return _scaled(value, [(1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1e3, "kFLOP"), (1, "FLOP")])


@register.filter
def count(value: float | None) -> str:
    """A count that may be large, e.g. "16.8 M"."""
    if value is None:
        return DASH
    return _scaled(value, [(1e9, "G"), (1e6, "M"), (1e4, "k"), (1, "")]).strip() if value >= 10_000 else str(value)


@register.filter
def relative(value: float | None) -> str:
    """A relative error, e.g. "2.81e-05"."""
    if value is None:
        return DASH
    return "0" if value == 0 else f"{value:.2e}"
