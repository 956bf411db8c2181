"""The main job from a shell."""

import json
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from rich.console import Console

from services.contracts import target_spec
from webapp.accounts.models import User
from webapp.accounts.services import ensure_user_with_team
from webapp.fleet.stack import StackError
from webapp.ops.models import Op
from webapp.ops.services import BadSource, decode_source
from webapp.runs.local import EXIT_ERRORED, exit_code, optimize_source, running_stack, show_result, winner_of
from webapp.runs.models import Run
from webapp.runs.services.steps import MAX_TURNS
from webapp.settings import ENV

LOCAL_USER = "local"


class Command(BaseCommand):
    """Uploads, screens and optimises one op; exits 0 when a kernel passed, 1 when none did, 2 on a fault of ours."""

    help = "Optimise the PyTorch op in PATH: screen it, run it, print verdict, speedup and kernel."

    def add_arguments(self, parser: CommandParser) -> None:
        """The op and the budget."""
        parser.add_argument("path", help="a .py file that defines Model, get_inputs() and get_init_inputs()")
        parser.add_argument(
            "--target", default=ENV.default_target, help="GPU to make the kernel for (default %(default)s)"
        )
        parser.add_argument("--turns", type=int, default=4, help="largest number of turns, the seed's included")
        parser.add_argument(
            "--user",
            default=LOCAL_USER,
            help="whose team keeps op and kernel (default %(default)s)",
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object instead of the display")
        parser.add_argument("--port", type=int, default=8000, help="port of the web while the run goes on")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the job, in a stack that runs already or in one of its own."""
        path = Path(options["path"])
        try:
            source = decode_source(path.read_bytes())
            target = target_spec(options["target"]).name
        except OSError as error:
            raise CommandError(f"{path} cannot be read: {error.strerror}.", returncode=EXIT_ERRORED) from None
        except (BadSource, ValueError) as error:
            raise CommandError(f"{path}: {error}", returncode=EXIT_ERRORED) from None
        if not 1 <= options["turns"] <= MAX_TURNS:
            raise CommandError(f"--turns must be 1 to {MAX_TURNS}.", returncode=EXIT_ERRORED)
        console = Console(file=sys.stderr if options["json"] else sys.stdout)
        try:
            with running_stack("127.0.0.1", options["port"], console) as alive:
                owner = _owner(options["user"])
                op, run = optimize_source(
                    path.stem, source, owner, console, alive, target=target, max_turns=options["turns"]
                )
        except StackError as error:
            raise CommandError(str(error), returncode=EXIT_ERRORED) from None
        if options["json"]:
            self.stdout.write(json.dumps(_result(op, run), indent=2))
        elif run:
            show_result(run, console)
        sys.exit(exit_code(op, run))


def _owner(username: str) -> User:
    if username != LOCAL_USER and not User.objects.filter(username=username).exists():
        raise CommandError(
            f"There is no user {username!r}: `manage.py createsuperuser` makes one.", returncode=EXIT_ERRORED
        )
    return ensure_user_with_team(username)


def _result(op: Op, run: Run | None) -> dict[str, Any]:
    kernel = winner_of(run) if run else None
    return {
        "op": op.name,
        "screening": op.state,
        "findings": [finding.model_dump(mode="json") for finding in op.report.findings] if op.report else [],
        "run": run.pk if run else None,
        "state": run.state if run else None,
        "reason": run.reason if run else op.problem or _blockers(op),
        "target": run.target if run else op.target,
        "predicted_speedup": kernel.evaluation.predicted_speedup if kernel else None,
        "measured_speedup": kernel.evaluation.measured_speedup if kernel else None,
        "evaluation": kernel.evaluation.message if kernel else None,
        "kernel": kernel.source if kernel else None,
    }


def _blockers(op: Op) -> str:
    return "; ".join(finding.title for finding in op.report.blockers) if op.report else ""
