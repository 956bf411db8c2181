"""Every static check, each of which is a test too (tests/tooling/test_static.py): `make lint`."""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
# -c: the console script would not find packages of the folder it runs in.
CHECK_BORDERS = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()"]
FOLDERS = ["services", "webapp", "tests", "scripts", "benchmarks"]
PATHS = [*(folder for folder in FOLDERS if (ROOT / folder).exists()), "manage.py"]


def checks() -> dict[str, list[str]]:
    """Name and command of each check."""
    templates = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "webapp").rglob("templates/**/*.html"))
    return {
        "ruff": [sys.executable, "-m", "ruff", "check", *PATHS],
        "format": [sys.executable, "-m", "ruff", "format", "--check", *PATHS],
        "mypy": [sys.executable, "-m", "mypy", *PATHS],
        "borders": CHECK_BORDERS,
        "templates": [str(BIN / "djade"), "--check", "--target-version", "5.2", *templates],
        "settings": [sys.executable, "scripts/settings_table.py", "--check"],
        "migrations": [sys.executable, "manage.py", "makemigrations", "--check", "--dry-run"],
    }


def run(command: list[str], cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run one check in the repository's root, its output kept."""
    environment = {"SECRET_KEY": "not needed by a static check", **os.environ}
    return subprocess.run(
        command, cwd=cwd, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def main(names: list[str]) -> int:
    """Run the named checks, all where none is named; the status is 1 where one fails."""
    failed = []
    for name, command in checks().items():
        if names and name not in names:
            continue
        started = time.perf_counter()
        result = run(command)
        verdict = "ok" if result.returncode == 0 else "FAILED"
        print(f"{name:<12}{verdict:<8}{time.perf_counter() - started:5.1f} s", flush=True)
        if result.returncode != 0:
            failed.append(name)
            print(result.stdout)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
