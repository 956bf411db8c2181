"""The speedup chart of a run: geometry only, the template draws it. x in percent of the width, y in pixels."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from webapp.runs.templatetags.figures import three_digits, times
from webapp.runs.timeline import CandidateRow, TurnRow

TOP, PLOT, FLOOR_GAP, LABEL_GAP = 26, 140, 28, 26
"""Pixels: above the plot, its height, from its bottom to the row of failures, from there to the turns' names."""
LEFT, RIGHT = 7.0, 97.0
"""Percent: where the plot starts and ends."""


@dataclass(frozen=True)
class Tick:
    """A horizontal rule with its label."""

    y: float
    label: str


@dataclass(frozen=True)
class Dot:
    """One candidate. `kind` is predicted, measured, failed or errored."""

    x: str
    y: float
    kind: str
    label: str
    title: str
    candidate_id: int


@dataclass(frozen=True)
class Segment:
    """A straight line."""

    x1: str
    y1: float
    x2: str
    y2: float


@dataclass(frozen=True)
class SpeedupChart:
    """Everything that the template draws."""

    height: float
    failures: bool
    left: str
    right: str
    floor_y: float
    label_y: float
    eager_y: float
    ticks: list[Tick]
    dots: list[Dot]
    best: list[Segment]
    turns: list[tuple[str, str]]
    """Labels below the plot: x and text."""
    description: str


class _Scale:
    """Speedup to pixels, logarithmic: 2x and 0.5x are equally far from eager."""

    def __init__(self, values: Sequence[float]) -> None:
        low, high = min([1.0, *values]), max([1.0, *values])
        self.low = 2 ** math.floor(math.log2(low) - 0.1) if low < 1 else 0.8
        self.high = 2 ** math.ceil(math.log2(high) + 0.15)

    def y(self, value: float) -> float:
        share = math.log2(value / self.low) / math.log2(self.high / self.low)
        return round(TOP + PLOT * (1 - share), 1)

    def ticks(self) -> list[Tick]:
        first, last = math.ceil(math.log2(self.low)), round(math.log2(self.high))
        stride = max(1, math.ceil((last - first) / 6))
        powers = [power for power in range(first, last + 1) if power % stride == 0]
        return [Tick(self.y(2.0**power), f"{three_digits(2.0**power)}×") for power in powers if power != 0]


def _percent(value: float) -> str:
    return f"{value:.2f}%"


def speedup_chart(turns: Sequence[TurnRow]) -> SpeedupChart | None:
    """The chart of all judged candidates in their order; None until there is one.

    A candidate that passed without an estimate has no place on it.
    """
    flat = [(turn, row) for turn in turns for row in turn.rows if row.speedup or row.outcome in {"failed", "errored"}]
    if not flat:
        return None
    values = [row.speedup for _, row in flat]
    scale = _Scale([value for value in values if value])
    failures = None in values
    floor_y = TOP + PLOT + (FLOOR_GAP if failures else 0)
    step = (RIGHT - LEFT) / len(flat)
    places = [LEFT + step * (index + 0.5) for index in range(len(flat))]
    dots = [_dot(turn, row, x, scale, floor_y) for (turn, row), x in zip(flat, places, strict=True)]
    return SpeedupChart(
        height=floor_y + LABEL_GAP + 8,
        failures=failures,
        left=_percent(LEFT),
        right=_percent(RIGHT),
        floor_y=floor_y,
        label_y=floor_y + LABEL_GAP,
        eager_y=scale.y(1.0),
        ticks=scale.ticks(),
        dots=dots,
        best=_best_line(values, places, scale),
        turns=_turn_labels([turn.turn.index for turn, _ in flat], places),
        description="; ".join(dot.title for dot in dots),
    )


def _dot(turn: TurnRow, row: CandidateRow, x: float, scale: _Scale, floor_y: float) -> Dot:
    measured = row.evaluation is not None and row.evaluation.measured_speedup is not None
    kind = ("measured" if measured else "predicted") if row.speedup else row.outcome
    words = row.evaluation.get_verdict_display() if row.evaluation else row.candidate.get_state_display()
    figure = f", {times(row.speedup)} {kind} against eager" if row.speedup else ""
    return Dot(
        x=_percent(x),
        y=scale.y(row.speedup) if row.speedup else floor_y,
        kind=kind,
        label=times(row.speedup) if row.speedup else "",
        title=f"Turn {turn.turn.index}: {words}{figure}",
        candidate_id=row.candidate.pk,
    )


def _best_line(values: Sequence[float | None], places: Sequence[float], scale: _Scale) -> list[Segment]:
    """The step line of the best speedup so far, as horizontal and vertical pieces."""
    line: list[Segment] = []
    best: float | None = None
    for index, (value, x) in enumerate(zip(values, places, strict=True)):
        if value and (best is None or value > best):
            if best is not None:
                line.append(Segment(_percent(x), scale.y(best), _percent(x), scale.y(value)))
            best = value
        if best is not None:
            end = places[index + 1] if index + 1 < len(places) else RIGHT
            line.append(Segment(_percent(x), scale.y(best), _percent(end), scale.y(best)))
    return line


def _turn_labels(indices: Sequence[int], places: Sequence[float]) -> list[tuple[str, str]]:
    """One label a turn at its first candidate; at most eight of them."""
    firsts = dict(zip(reversed(indices), reversed(places), strict=True))
    stride = max(1, math.ceil(len(firsts) / 8))
    return [(_percent(firsts[index]), f"turn {index}") for index in sorted(firsts)[::stride]]
