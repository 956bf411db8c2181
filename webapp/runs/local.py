"""The main job from a shell: the same ops, runs and workers as in the browser."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from django.utils import timezone
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from services.contracts import Severity, Verdict
from webapp.accounts.models import User
from webapp.accounts.services import ensure_team
from webapp.config import BASE_DIR
from webapp.fleet.stack import StackError, check_port, is_up, prepare, wait_ready
from webapp.library.models import Kernel
from webapp.ops.models import Op
from webapp.ops.services import create_op
from webapp.ops.states import OpState
from webapp.runs.models import Run
from webapp.runs.services import start_run
from webapp.runs.states import RunState
from webapp.runs.watch import watch_run, watch_screening
from webapp.settings import HOME

EXIT_PASSED, EXIT_FAILED, EXIT_ERRORED = 0, 1, 2
DETAIL_CHARS = 600
"""Longer details of a finding are cut in a terminal; the page and --json have them whole."""
_EXIT = {RunState.PASSED: EXIT_PASSED, RunState.FAILED: EXIT_FAILED, RunState.CANCELLED: EXIT_FAILED}


@contextlib.contextmanager
def running_stack(host: str, port: int, console: Console, *, demo: bool = False) -> Iterator[Callable[[], bool]]:
    """The stack that already runs here, or one of our own until the block ends; yields "is it still alive?".

    Raises StackError where it cannot start.
    """
    if is_up(HOME):
        yield lambda: True
        return
    check_port(host, port)
    prepare()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the stack is stopped too
    started = timezone.now()
    log = HOME / "log" / "up.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as output:
        command = [sys.executable, "manage.py", "up", "--quiet", "--prepared", "--host", host, "--port", str(port)]
        environment = {**os.environ, **({"DEMO": "1"} if demo else {})}
        stack = subprocess.Popen(
            command, cwd=BASE_DIR, env=environment, stdout=output, stderr=output, start_new_session=True
        )

    def alive() -> bool:
        return stack.poll() is None

    try:
        with console.status("Starting broker, web and workers"):
            try:
                wait_ready(started, alive=alive)
            except StackError as error:
                raise StackError(f"{error}\n{log.read_text()[-3000:]}".rstrip()) from None
        yield alive
        if not alive():
            raise StackError(log.read_text()[-3000:])
    finally:
        if alive():
            stack.send_signal(signal.SIGTERM)
            try:
                stack.wait(timeout=30)
            except subprocess.TimeoutExpired:
                os.killpg(stack.pid, signal.SIGKILL)


def address_of(home: Path) -> str:
    """Where the web of the running stack is, as the stack wrote it into its lock."""
    return (home / "up.lock").read_text().partition(",")[0]


def optimize_source(
    name: str,
    source: str,
    owner: User,
    console: Console,
    alive: Callable[[], bool],
    *,
    target: str,
    max_turns: int,
) -> tuple[Op, Run | None]:
    """Upload, screen and optimise one op, with a live display; no run where screening refused the op."""
    op = create_op(ensure_team(owner), owner, name, source, target=target)
    op = watch_screening(op, console, alive)
    show_screening(op, console)
    if op.state != OpState.READY:
        return op, None
    run = watch_run(start_run(op, owner, max_turns=max_turns), console, alive)
    return op, run


def exit_code(op: Op, run: Run | None) -> int:
    """0 passed, 1 the op or kernel failed, 2 a fault of ours."""
    if run is None:
        return EXIT_FAILED if op.state == OpState.REFUSED else EXIT_ERRORED
    return _EXIT.get(RunState(run.state), EXIT_ERRORED)


def show_screening(op: Op, console: Console) -> None:
    """Print the findings in plain words."""
    colours = {Severity.BLOCKER: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
    # As Text: names and messages are the user's, and may look like markup.
    console.print(Text(op.name, "bold") + Text(f": {op.get_state_display().lower()} {op.problem}".rstrip(), "none"))
    for finding in op.report.by_severity if op.report else []:
        where = f" (line {finding.line})" if finding.line else ""
        console.print(Text(f"  {finding.severity}", colours[finding.severity]) + f" {finding.title}{where}")
        detail = finding.detail if len(finding.detail) <= DETAIL_CHARS else f"{finding.detail[:DETAIL_CHARS]} …"
        for text, style in ((detail, ""), (finding.mend, "dim")):
            if text:
                console.print(Padding(Text(text, style), (0, 0, 0, 6), expand=False))


def show_result(run: Run, console: Console) -> None:
    """Print verdict, speedup and kernel."""
    kernel = winner_of(run)
    if kernel is None:
        console.print(Panel(Text(run.reason), title=run.get_state_display(), border_style="red"))
        return
    report = kernel.evaluation.report
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_row("verdict", Verdict(kernel.evaluation.verdict).label)
    if report.estimate:
        facts.add_row("speedup", f"{report.estimate.predicted_speedup:.2f}x predicted against eager, not measured")
        facts.add_row("why", Text(report.estimate.sentence))
    if report.timing:
        facts.add_row("speedup", f"{report.timing.ratio:.2f}x measured against {report.timing.baseline}")
    if kernel.evaluation.speedup is not None and kernel.evaluation.speedup <= 1:
        facts.add_row("", "[yellow]correct, but not faster than eager: nothing is gained by using it[/]")
    ran = sum(1 for family in report.families if family.passed)
    facts.add_row("checked", f"{ran} input families against a float64 golden, isolation {report.isolation}")
    for launched in report.kernels:
        if compiled := launched.compiled:
            facts.add_row(
                Text(launched.name),
                f"compiled for {kernel.target}: {compiled.registers} registers, {compiled.spills} spills, "
                f"{compiled.shared_bytes} bytes of shared memory",
            )
    if console.is_terminal:
        console.print(Syntax(kernel.source, "python", theme="ansi_dark", line_numbers=True))
    else:  # a file or a pipe wants whole lines
        console.file.write(kernel.source)
    console.print(
        Panel(facts, title=Text(f"{kernel.name}@{kernel.version}: {run.get_state_display()}"), border_style="green")
    )


def winner_of(run: Run) -> Kernel | None:
    """The library's kernel that this run's best candidate is or equals."""
    if run.best is None:
        return None
    kernels = Kernel.objects.select_related("evaluation").filter(op_id=run.op_id, target=run.target)
    return kernels.filter(source_sha256=run.best.source_sha256).first() or kernels.order_by("-version").first()
