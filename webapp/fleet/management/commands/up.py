"""Starts everything on one machine."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from webapp.fleet.stack import StackError, run_stack


class Command(BaseCommand):
    """Broker, web, workers and beat in one terminal; Ctrl-C ends all."""

    help = "Start the broker, the web, the workers and beat in this terminal. Ctrl-C ends all."

    def add_arguments(self, parser: CommandParser) -> None:
        """Where the web listens."""
        parser.add_argument("--host", default="127.0.0.1", help="address of the web (default 127.0.0.1)")
        parser.add_argument("--port", type=int, default=8000, help="port of the web (default 8000)")
        parser.add_argument("--quiet", action="store_true", help="write the logs to files only")
        parser.add_argument("--prepared", action="store_true", help="database and static files are up to date already")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until Ctrl-C or until one process dies."""
        host, port = options["host"], options["port"]
        if not options["quiet"]:
            self.stdout.write(f"Warpsmith will be at http://{host}:{port} (Ctrl-C ends all)\n")
        try:
            run_stack(host, port, show=not options["quiet"], prepared=options["prepared"])
        except StackError as error:
            raise CommandError(str(error), returncode=1) from None
