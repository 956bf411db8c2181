#!/usr/bin/env python
"""Warpsmith's command line: `up`, `demo`, `optimize` and Django's own commands."""

import os
import sys


def main() -> None:
    """Run one management command on this machine's own state folder."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
    from django.core.management import execute_from_command_line

    from webapp.config import ensure_local_secret

    ensure_local_secret()
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.stderr.write("Stopped.\n")
        sys.exit(130)
