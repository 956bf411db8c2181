"""The speedup chart of a run: geometry only, the template draws it. x in percent of the width, y in pixels."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from webapp.runs.templatetags.figures import times
from webapp.runs.timeline import TurnRow

TOP, PLOT, FLOOR_GAP = 26, 150, 30
"""Pixels: above the plot, its height, from its bottom to the row of failures."""
LEFT, RIGHT = 7.0, 97.0
"""Percent: where the plot starts and ends."""
HEIGHT = TOP + PLOT + FLOOR_GAP + 34


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

    height: int
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
        self.low = 2 ** math.floor(math.log2(low) - 0.1)
        self.high = 2 ** math.ceil(math.log2(high) + 0.15)

    def y(self, value: float) -> float:
        share = math.log2(value / self.low) / math.log2(self.high / self.low)
        return round(TOP + PLOT * (1 - share), 1)

    def ticks(self) -> list[Tick]:
        first, last = round(math.log2(self.low)), round(math.log2(self.high))
        stride = max(1, math.ceil((last - first) / 6))
        powers = [power for power in range(first, last + 1) if power % stride == 0]
        return [Tick(self.y(2.0**power), times(2.0**power)) for power in powers if power != 0]


def _percent(value: float) -> str:
    return f"{value:.2f}%"


def speedup_chart(turns: Sequence[TurnRow]) -> SpeedupChart | None:
    """The chart of all judged candidates in their order; None until there is one."""
    flat = [(turn, row) for turn in turns for row in turn.rows if row.outcome in {"passed", "failed", "errored"}]
    if not flat:
        return None
    scale = _Scale([row.speedup for _, row in flat if row.speedup])
    floor_y = TOP + PLOT + FLOOR_GAP
    step = (RIGHT - LEFT) / len(flat)
    dots, best, labels = [], [], []
    high: float | None = None
    seen: set[int] = set()
    crowded = len(flat) > 12
    for place, (turn, row) in enumerate(flat):
        x = LEFT + step * (place + 0.5)
        value = row.speedup
        improves = value is not None and (high is None or value > high)
        if value is not None and improves:
            if high is not None:
                best.append(Segment(_percent(x), scale.y(high), _percent(x), scale.y(value)))
            high = value
        if high is not None:
            end = x + step if place + 1 < len(flat) else RIGHT
            best.append(Segment(_percent(x), scale.y(high), _percent(end), scale.y(high)))
        measured = bool(row.evaluation and row.evaluation.measured_speedup is not None)
        kind = ("measured" if measured else "predicted") if value is not None else row.outcome
        words = row.evaluation.get_verdict_display() if row.evaluation else row.candidate.get_state_display()
        title = f"Turn {turn.turn.index}: {words}" + (f", {times(value)} {kind} against eager" if value else "")
        dots.append(
            Dot(
                x=_percent(x),
                y=scale.y(value) if value is not None else floor_y,
                kind=kind if kind != "passed" else "predicted",
                label=times(value) if value is not None and (improves or not crowded) else "",
                title=title,
                candidate_id=row.candidate.pk,
            )
        )
        if turn.turn.index not in seen and (not crowded or turn.turn.index % 4 == 0):
            labels.append((_percent(x), f"turn {turn.turn.index}"))
        seen.add(turn.turn.index)
    return SpeedupChart(
        height=HEIGHT,
        left=_percent(LEFT),
        right=_percent(RIGHT),
        floor_y=floor_y,
        label_y=floor_y + 28,
        eager_y=scale.y(1.0),
        ticks=scale.ticks(),
        dots=dots,
        best=best,
        turns=labels,
        description="; ".join(dot.title for dot in dots),
    )
