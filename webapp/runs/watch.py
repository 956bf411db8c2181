"""A run's progress in a terminal."""

import time
from collections.abc import Callable

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from services.contracts import Verdict
from webapp.fleet.stack import StackError
from webapp.ops.models import Op
from webapp.runs.models import Candidate, Run, Turn
from webapp.runs.selectors import turns_of
from webapp.runs.states import RUN_ACTIVE

POLL_S = 0.3
_MARK = {"passed": "[green]✓[/]", "failed": "[red]✗[/]", "skipped": "[dim]-[/]"}


def watch_screening(op: Op, console: Console, alive: Callable[[], bool]) -> Op:
    """Wait for the screening report. Raises StackError when the stack ends first."""
    with console.status(f"Screening {escape(op.name)}: does it load, run, is it deterministic, can it be judged?"):
        while op.is_active:
            _must_live(alive)
            time.sleep(POLL_S)
            op.refresh_from_db()
    return op


def watch_run(run: Run, console: Console, alive: Callable[[], bool]) -> Run:
    """Show a run live until it ends. Raises StackError when the stack ends first."""
    with Live(_picture(run), console=console, refresh_per_second=8, transient=False) as live:
        while run.state in RUN_ACTIVE:
            _must_live(alive)
            time.sleep(POLL_S)
            run.refresh_from_db()
            live.update(_picture(run))
        live.update(_picture(run))
    return run


def _must_live(alive: Callable[[], bool]) -> None:
    if not alive():
        raise StackError("The stack ended before the work was done; nothing is lost: start it again and it goes on.")


def _picture(run: Run) -> RenderableType:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(width=3)
    table.add_column(width=12)
    table.add_column()
    for turn in turns_of(run):
        table.add_row(*_turn_row(turn))
        for candidate in turn.candidates.all():
            table.add_row(*_candidate_row(candidate))
    if run.state in RUN_ACTIVE:
        return Group(table, Spinner("dots", text=f" {run.get_state_display()}"))
    return table


def _turn_row(turn: Turn) -> tuple[str, str, Text]:
    if turn.is_active and turn.proposed_at is None:
        return "…", f"turn {turn.index}", Text(f"{turn.proposer}: {turn.get_state_display().lower()}")
    seconds = f" in {turn.propose_seconds:.1f} s" if turn.propose_seconds is not None else ""
    return "", f"turn {turn.index}", Text(f"{turn.proposer}: {turn.reason or 'proposed'}{seconds}")


def _candidate_row(candidate: Candidate) -> tuple[str, str, Text]:
    evaluation = next(iter(candidate.evaluations.all()), None)
    if evaluation is None:
        doing = candidate.problem or candidate.stage or candidate.get_state_display().lower()
        return "", "", Text(f"{candidate.title}: {doing}")
    verdict = Verdict(evaluation.verdict)
    stages = "  ".join(
        f"{_MARK[stage.status]} {stage.stage} {stage.seconds:.1f} s" for stage in evaluation.report.stages
    )
    mark = _MARK["passed" if verdict is Verdict.PASSED else "failed"]
    return mark, "", Text.from_markup(f"[bold]{verdict.label}[/]  {stages}")
