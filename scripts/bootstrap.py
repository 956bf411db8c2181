"""Make .venv from a lock file: `python3 scripts/bootstrap.py all|dev|web|sandbox|inference|trainer|gpu [--browser]`.

Standard library only, and free of syntax newer than Python 3.8, so that an old Python gets a message and no traceback.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(os.path.abspath(__file__)).parent.parent  # noqa: PTH100 - resolve() would follow a linked checkout
VENV = ROOT / ".venv"
LOCKS = ROOT / "requirements"
LOGS = ROOT / "var" / "log"
INTERRUPTED = VENV / ".warpsmith-installing"
OLDEST, TOO_NEW = (3, 11), (3, 14)
# `dev` is `all` and the tools: an environment made for it serves for both.
CONTAINS = {"dev": ("dev", "all")}
NEEDED_BYTES = 3_000_000_000
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
CLEAR_LINE = "\r\033[K"
PROBE = "import sys; print(*sys.version_info[:2]); import ensurepip, venv"
NO_NETWORK = (
    "NewConnectionError",
    "ConnectTimeoutError",
    "ReadTimeoutError",
    "Connection refused",
    "Name or service not known",
    "Temporary failure in name resolution",
    "Network is unreachable",
    "ProxyError",
)
HINTS = (
    (("No space left on device",), "The disk is full. Free about 3 GB here and in the temporary folder (TMPDIR)."),
    (
        NO_NETWORK,
        "The package index does not answer. Check the network and pip's settings (`pip config list`).",
    ),
    (("Permission denied", "Read-only file system"), "A folder may not be written. Check who owns this checkout."),
    (("No matching distribution",), "The package index has no fitting build, or does not answer."),
)


class Stop(Exception):
    """A reason to end that the user can mend; its text says how."""


def main(arguments: list[str]) -> int:
    """Install what is missing. The exit status is 0 where the environment stands."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("role", choices=sorted(path.stem for path in LOCKS.glob("*.txt") if path.stem != "constraints"))
    parser.add_argument("--browser", action="store_true", help="a browser for the tests too")
    options = parser.parse_args(arguments)
    try:
        if not is_installed(options.role):
            install(options.role)
        if options.browser:
            ensure_browser()
    except Stop as stop:
        print(f"\nwarpsmith: {stop}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"\nwarpsmith: {describe_os_error(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nwarpsmith: interrupted. The same command starts again.", file=sys.stderr)
        return 130
    return 0


def is_installed(role: str) -> bool:
    """Whether .venv was finished from this role's present lock."""
    stamp = VENV / f".warpsmith-{role}"
    if INTERRUPTED.exists() or not (VENV / "bin" / "python").exists() or not stamp.exists():
        return False
    return stamp.read_text() == lock_digest(role)


def lock_digest(role: str) -> str:
    """The sha256 of a role's lock file."""
    return hashlib.sha256((LOCKS / f"{role}.txt").read_bytes()).hexdigest()


def install(role: str) -> None:
    """Make .venv if need be and install the role's lock file into it."""
    if not sys.platform.startswith("linux"):
        raise Stop("Triton and the sandbox need Linux. On Windows use WSL 2, on macOS a Linux virtual machine.")
    with only_one_installation():
        if is_installed(role):
            return
        started = time.time()
        python = find_python()
        check_disk()
        make_environment(python)
        log = LOGS / f"install-{role}.log"
        pip_install(role, log)
        compile_sources()
        for name in CONTAINS.get(role, (role,)):
            (VENV / f".warpsmith-{name}").write_text(lock_digest(name))
        INTERRUPTED.unlink(missing_ok=True)
        say(f"Installed in {time.time() - started:.0f} s.")


@contextmanager
def only_one_installation() -> Iterator[None]:
    """Hold the installation lock; a second caller waits."""
    LOGS.mkdir(parents=True, exist_ok=True)
    with (LOGS.parent / "install.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another installation is under way here; waiting for it.")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def find_python() -> str:
    """The first Python of a supported version: PYTHON, the running one, then python3.13 to python3.11."""
    wanted = os.environ.get("PYTHON")
    names = [wanted] if wanted else [sys.executable, "python3.13", "python3.12", "python3.11", "python3"]
    seen = []
    for name in names:
        version, has_venv = probe_python(name)
        if version is None:
            continue
        seen.append(f"{name} is {version[0]}.{version[1]}")
        if is_supported(version):
            if not has_venv:
                package = f"python{version[0]}.{version[1]}-venv"
                raise Stop(f"{name} has no venv module. On Debian and Ubuntu: apt-get install {package}")
            return name
    found = "; ".join(seen) or "none"
    raise Stop(
        f"Python 3.11, 3.12 or 3.13 is needed; found: {found}.\n"
        "Install one (Debian, Ubuntu: apt-get install python3 python3-venv) "
        "or name it: make demo PYTHON=/path/to/python3.11"
    )


def is_supported(version: tuple[int, int] | None) -> bool:
    """Whether the locks and torch's builds cover this Python."""
    return version is not None and OLDEST <= version < TOO_NEW


def probe_python(name: str) -> tuple[tuple[int, int] | None, bool]:
    """The version of the interpreter called `name`, None where there is none, and whether it can make environments."""
    try:
        result = subprocess.run([name, "-c", PROBE], capture_output=True, timeout=30)
        major, minor = result.stdout.split()[:2]
        return (int(major), int(minor)), result.returncode == 0
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None, False


def check_disk() -> None:
    """Refuse to start on a disk that cannot hold the environment."""
    free = shutil.disk_usage(str(ROOT)).free
    if not VENV.exists() and free < NEEDED_BYTES:
        raise Stop(f"About 3 GB are needed in {ROOT} and {free / 1e9:.1f} GB are free. Free some and start again.")


def make_environment(python: str) -> None:
    """Make .venv, anew where an earlier installation was cut off or its Python is gone."""
    if VENV.exists() and (INTERRUPTED.exists() or not is_supported(probe_python(str(VENV / "bin" / "python"))[0])):
        say("The .venv here is half-finished or of another Python: making it anew.")
        shutil.rmtree(str(VENV))
    if VENV.exists():
        return
    say(f"Making .venv with {python}.")
    VENV.mkdir()
    INTERRUPTED.touch()
    result = subprocess.run([python, "-m", "venv", str(VENV)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if result.returncode != 0:
        raise Stop(f"`{python} -m venv .venv` failed:\n{result.stdout.decode(errors='replace').strip()}")
    INTERRUPTED.unlink()


def pip_install(role: str, log: Path) -> None:
    """Run pip on the role's lock, its whole output in `log`, one line of progress here.

    pip compiles what it installs, whatever PYTHONDONTWRITEBYTECODE says.
    """
    lock = LOCKS / f"{role}.txt"
    say(f"Installing {count(lock)} packages from requirements/{lock.name}: a minute or two, more on a slow network.")
    command = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--no-input", "-r", str(lock)]
    environment = {**os.environ, "PIP_PROGRESS_BAR": "off", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=str(ROOT), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, universal_newlines=True, errors="replace",
        )  # fmt: skip
        assert process.stdout is not None  # noqa: S101 - for the type checker
        for line in process.stdout:
            output.write(line)
            output.flush()
            if line.startswith("Installing collected"):
                INTERRUPTED.touch()  # until here pip changed nothing
            show_progress(line)
        status = process.wait()
    if status != 0:
        raise Stop(f"{hint(log)}\npip's own words, all of them in {log.relative_to(ROOT)}:\n{tail(log)}")


def count(lock: Path) -> int:
    """The number of packages in a lock file."""
    return sum(1 for line in lock.read_text().splitlines() if "==" in line)


def show_progress(line: str) -> None:
    """Name what pip turned to."""
    if line.startswith(("Collecting", "Installing")):
        text = " ".join(line.split()[:2])
        if sys.stdout.isatty():
            print(f"{CLEAR_LINE}  {text}", end="", flush=True)
        elif line.startswith("Installing"):
            say("  all packages are here; unpacking them")


def hint(log: Path) -> str:
    """What to do about a failed pip."""
    text = log.read_text(errors="replace")
    for signs, advice in HINTS:
        if any(sign in text for sign in signs):
            return advice
    return "pip could not install the packages."


def tail(log: Path, lines: int = 4) -> str:
    """The last lines of a log, indented."""
    return "\n".join("  " + line[:300] for line in log.read_text(errors="replace").strip().splitlines()[-lines:])


def compile_sources() -> None:
    """Write our own bytecode: the sandbox sees the sources read-only and would compile them at each start."""
    command = [str(VENV / "bin" / "python"), "-m", "compileall", "-q", "services", "webapp"]
    subprocess.run(command, cwd=str(ROOT), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def ensure_browser() -> None:
    """Have a Chromium for the browser tests: the one that is there, else Debian's."""
    if any(shutil.which(name) for name in BROWSERS):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Stop(
            "The browser tests need Chromium (Debian, Ubuntu: sudo apt-get install chromium).\n"
            "Without it: make test NO_BROWSER=1"
        )
    say("Installing Chromium with apt-get: about a minute.")
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / "install-browser.log"
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with log.open("w") as output:
        for arguments in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
            command = ["apt-get", "-q", *arguments]
            result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
            if result.returncode != 0:
                raise Stop(f"`{' '.join(command)}` failed; see {log.relative_to(ROOT)}:\n{tail(log)}")


def describe_os_error(error: OSError) -> str:
    """A failed file operation in words."""
    what = f"{error.filename or ROOT}: {error.strerror or error}"
    return f"{what}. Check that this checkout may be written and that the disk is not full."


def say(text: str) -> None:
    """Print one line over the progress line."""
    print(CLEAR_LINE * sys.stdout.isatty() + text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
