"""Shows the main job on a sample op."""

import secrets
import sys
import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from rich.console import Console

from services.contracts import target_spec
from webapp.accounts.services import ensure_user_with_team
from webapp.fleet.stack import StackError, is_up
from webapp.ops.selectors import samples
from webapp.runs.local import EXIT_ERRORED, address_of, exit_code, optimize_source, running_stack, show_result
from webapp.settings import ENV, HOME

DEMO_USER = "demo"


class Command(BaseCommand):
    """Starts the stack, optimises a sample op with a live display and leaves the web running."""

    help = "Start everything, optimise a sample op, print the kernel, and leave the web running."

    def add_arguments(self, parser: CommandParser) -> None:
        """What to show, and where."""
        parser.add_argument("--once", action="store_true", help="end after the run: exit 0 when it passed")
        parser.add_argument("--sample", default="rms_norm_residual", help="which sample op")
        parser.add_argument("--target", default=ENV.default_target, help="GPU to make the kernel for")
        parser.add_argument("--host", default="127.0.0.1", help="address of the web")
        parser.add_argument("--port", type=int, default=8000, help="port of the web")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the demo."""
        console = Console()
        chosen = next((sample for sample in samples() if sample.slug == options["sample"]), None)
        if chosen is None:
            raise CommandError(f"No such sample. Choose one of: {', '.join(sample.slug for sample in samples())}.")
        host, port = options["host"], options["port"]
        try:
            target = target_spec(options["target"]).name
        except ValueError as error:
            raise CommandError(str(error), returncode=EXIT_ERRORED) from None
        running_elsewhere = is_up(HOME)
        try:
            with running_stack(host, port, console, demo=True) as alive:
                password = demo_password()
                owner = ensure_user_with_team(DEMO_USER, password)
                console.rule(f"{chosen.title} for {target}")
                op, run = optimize_source(chosen.slug, chosen.source, owner, console, alive, target=target, max_turns=4)
                if run:
                    show_result(run, console)
                code = exit_code(op, run)
                if options["once"]:
                    sys.exit(code)
                console.rule("The web is running")
                console.print(
                    f"  {address_of(HOME)}{f'/runs/{run.pk}/' if run else '/'}\n"
                    f"  sign in as [bold]{DEMO_USER}[/] with [bold]{password}[/]\n"
                    f"  {'It was running before, and goes on.' if running_elsewhere else 'Ctrl-C ends all.'}"
                )
                while alive() and not running_elsewhere:
                    time.sleep(0.5)
        except KeyboardInterrupt:
            console.print("Stopped.")
        except StackError as error:
            raise CommandError(str(error), returncode=EXIT_ERRORED) from None


def demo_password() -> str:
    """This machine's demo password: made once, readable by its owner only."""
    path = HOME / "demo-password"
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(9))
    return path.read_text().strip()
