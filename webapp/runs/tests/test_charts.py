"""The speedup chart's geometry."""

from webapp.accounts.models import User
from webapp.runs.charts import SpeedupChart, speedup_chart
from webapp.runs.models import Run
from webapp.runs.selectors import turns_of
from webapp.runs.services import record_evaluation
from webapp.runs.tests.rows import KERNEL_SOURCE, begun_run, failed, passed, propose
from webapp.runs.timeline import timeline


def chart_of(run: Run) -> SpeedupChart:
    chart = speedup_chart(timeline(turns_of(run)))
    assert chart is not None
    return chart


def test_there_is_no_chart_before_a_verdict(alice: User) -> None:
    assert speedup_chart(timeline(turns_of(begun_run(alice)))) is None


def test_faster_is_higher_and_a_failure_lies_on_the_floor(alice: User) -> None:
    run = begun_run(alice)
    slow, broken, fast = propose(run.turns.get(), *(KERNEL_SOURCE + f"# {i}\n" for i in range(3)))
    record_evaluation(passed(slow, 0.7))
    record_evaluation(failed(broken))
    record_evaluation(passed(fast, 4.0))
    chart = chart_of(run)
    low, floor, high = chart.dots
    assert high.y < chart.eager_y < low.y < floor.y == chart.floor_y
    assert [dot.kind for dot in chart.dots] == ["predicted", "failed", "predicted"]
    assert [dot.label for dot in chart.dots] == ["0.70×", "", "4.00×"]
    assert "compile error" in chart.description
    assert "4.00× predicted against eager" in chart.description


def test_the_best_line_never_falls(alice: User) -> None:
    run = begun_run(alice)
    speedups = [1.5, 3.0, 2.0]
    for candidate, speedup in zip(
        propose(run.turns.get(), *(KERNEL_SOURCE + f"# {i}\n" for i in range(3))), speedups, strict=True
    ):
        record_evaluation(passed(candidate, speedup))
    heights = [segment.y2 for segment in chart_of(run).best]
    assert heights == sorted(heights, reverse=True)
    assert heights[-1] == chart_of(run).dots[1].y


def test_a_measured_dot_is_not_a_predicted_one(alice: User) -> None:
    run = begun_run(alice)
    candidate = propose(run.turns.get(), KERNEL_SOURCE)[0]
    record_evaluation(passed(candidate))
    candidate.evaluations.update(measured_speedup=1.9)
    dot = chart_of(run).dots[0]
    assert (dot.kind, dot.label) == ("measured", "1.90×")
