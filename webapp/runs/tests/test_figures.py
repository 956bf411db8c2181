"""Figures as people read them."""

import math

import pytest

from webapp.runs.templatetags import figures


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0 µs"),
        (0.0000123, "12.3 µs"),
        (0.01234, "12.3 ms"),
        (0.99999, "1 s"),
        (1.2345, "1.23 s"),
        (59.96, "1 min 0 s"),
        (125, "2 min 5 s"),
        (3725, "1 h 2 min"),
    ],
)
def test_a_time_has_a_unit_and_three_digits(value: float | None, text: str) -> None:
    assert figures.seconds(value) == text


SPEEDUPS = [(0.5, "0.50×"), (1.5, "1.50×"), (9.999, "10.0×"), (12.44, "12.4×"), (1234.0, "1230×")]


@pytest.mark.parametrize(("value", "text"), SPEEDUPS)
def test_a_speedup_has_three_digits(value: float, text: str) -> None:
    assert figures.times(value) == text


def test_sizes_are_decimal() -> None:
    assert figures.data_size(4_194_304) == "4.19 MB"
    assert figures.data_size(999.9e3) == "1 MB"
    assert figures.data_size(12) == "12 B"
    assert figures.flop_count(1_073_741_824) == "1.07 GFLOP"


def test_a_relative_error_keeps_its_exponent() -> None:
    assert figures.relative(2.814e-5) == "2.81e-05"
    assert figures.relative(0) == "0"


def test_what_is_no_figure_is_a_dash_and_infinity_stays() -> None:
    for convert in (figures.seconds, figures.times, figures.data_size, figures.relative):
        assert convert(None) == convert("") == "–"
        assert convert(math.inf) == "inf"
        assert convert(math.nan) == "nan"
