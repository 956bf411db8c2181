"""`make` on machines where something is missing: one clear message, never a traceback, and the next call recovers."""

import ast
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from scripts import bootstrap
from scripts.lint import ROOT

PACKAGE = "warpsmith-probe"
DEAD_INDEX = "http://127.0.0.1:9/simple"


class Checkout:
    """A copy of the two commands' files with locks that name one small package."""

    def __init__(self, folder: Path, wheels: Path) -> None:
        self.folder = folder
        self.venv = folder / ".venv"
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(wheels),
            "PIP_RETRIES": "0",
            "PYTHON": sys.executable,
        }
        (folder / "scripts").mkdir(parents=True)
        (folder / "requirements").mkdir()
        shutil.copy(ROOT / "Makefile", folder)
        shutil.copy(ROOT / "scripts/bootstrap.py", folder / "scripts")
        for role in ("all", "dev"):
            self.lock(role, f"{PACKAGE}==1.0")

    def lock(self, role: str, text: str) -> None:
        """Write a role's lock file."""
        (self.folder / f"requirements/{role}.txt").write_text(f"{text}\n")

    def make(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run make and check that whatever it says is no traceback."""
        result = subprocess.run(
            ["make", "--no-print-directory", "NO_BROWSER=1", *arguments],
            cwd=self.folder,
            env={**self.environment, **environment},
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=120,
        )
        assert "Traceback" not in result.stdout, result.stdout
        return result

    def has_package(self) -> bool:
        """Whether the package of the locks can be imported."""
        command = [str(self.venv / "bin/python"), "-c", "import warpsmith_probe"]
        return subprocess.run(command, capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the one wheel that the locks name."""
    folder = tmp_path_factory.mktemp("wheels")
    info = "warpsmith_probe-1.0.dist-info"
    with zipfile.ZipFile(folder / "warpsmith_probe-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("warpsmith_probe.py", "")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"warpsmith_probe.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return folder


@pytest.fixture
def checkout(tmp_path: Path, wheels: Path) -> Checkout:
    """A fresh clone in a folder whose name has a space."""
    return Checkout(tmp_path / "my clone", wheels)


def fake_python(folder: Path, script: str) -> str:
    """A program that stands for an interpreter."""
    path = folder / "fake-python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_it_parses_on_the_oldest_python_that_gets_its_message() -> None:
    ast.parse((ROOT / "scripts/bootstrap.py").read_text(), feature_version=(3, 8))


def test_it_installs_and_the_second_call_starts_at_once(checkout: Checkout) -> None:
    first = checkout.make("all")
    assert first.returncode == 0, first.stdout
    assert "Installing 1 packages" in first.stdout
    assert checkout.has_package()

    seconds = []
    for _ in range(3):  # the best of them: other tests run beside this one
        started = time.perf_counter()
        again = checkout.make("all", PIP_FIND_LINKS="/nowhere")
        seconds.append(time.perf_counter() - started)
        assert (again.returncode, again.stdout) == (0, "")
    assert min(seconds) < 1


def test_a_changed_lock_is_installed(checkout: Checkout) -> None:
    checkout.lock("all", "")
    assert checkout.make("all").returncode == 0
    assert not checkout.has_package()
    checkout.lock("all", f"{PACKAGE}==1.0")
    assert checkout.make("all").returncode == 0
    assert checkout.has_package()


def test_an_environment_for_tests_serves_the_demo(checkout: Checkout) -> None:
    assert checkout.make("dev").returncode == 0
    assert checkout.make("all").stdout == ""


def test_it_names_the_old_python_it_found(checkout: Checkout, tmp_path: Path) -> None:
    old = fake_python(tmp_path, f'case "$2" in *ensurepip*) echo 3 8;; *) exec {sys.executable} "$@";; esac')
    result = checkout.make("all", PYTHON=old)
    assert result.returncode != 0
    assert f"{old} is 3.8" in result.stdout
    assert "make demo PYTHON=" in result.stdout


def test_a_python_too_old_for_the_script_itself_gets_a_message(checkout: Checkout, tmp_path: Path) -> None:
    result = checkout.make("all", PYTHON=fake_python(tmp_path, "exit 1"))
    assert result.returncode != 0
    assert "Python 3.11, 3.12 or 3.13 is needed" in result.stdout


def test_it_says_how_to_get_the_venv_module(checkout: Checkout, tmp_path: Path) -> None:
    bare = fake_python(tmp_path, f'case "$2" in *ensurepip*) echo 3 11; exit 1;; *) exec {sys.executable} "$@";; esac')
    result = checkout.make("all", PYTHON=bare)
    assert result.returncode != 0
    assert "apt-get install python3.11-venv" in result.stdout


def test_without_network_it_says_so_and_recovers(checkout: Checkout) -> None:
    cut_off = {"PIP_INDEX_URL": DEAD_INDEX, "PIP_NO_INDEX": "0", "PIP_FIND_LINKS": "", "PIP_RETRIES": "1"}
    result = checkout.make("all", **cut_off)
    assert result.returncode != 0
    assert "The package index does not answer" in result.stdout
    assert "var/log/install-all.log" in result.stdout
    assert checkout.make("all").returncode == 0
    assert checkout.has_package()


def test_a_failed_installation_for_tests_leaves_the_demo_working(checkout: Checkout) -> None:
    assert checkout.make("all").returncode == 0
    checkout.lock("dev", "no-such-package==1.0")
    result = checkout.make("dev")
    assert result.returncode != 0
    assert "no-such-package" in result.stdout
    assert checkout.make("all").stdout == ""


def test_it_recovers_from_a_kill_in_mid_download(checkout: Checkout) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent_index:
        port = silent_index.getsockname()[1]
        stuck = {"PIP_INDEX_URL": f"http://127.0.0.1:{port}/simple", "PIP_NO_INDEX": "0", "PIP_FIND_LINKS": ""}
        process = subprocess.Popen(
            ["make", "all"], cwd=checkout.folder, env={**checkout.environment, **stuck}, start_new_session=True
        )
        silent_index.settimeout(60)
        silent_index.accept()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert checkout.make("all").returncode == 0
    assert checkout.has_package()


def test_it_makes_a_half_unpacked_environment_anew(checkout: Checkout) -> None:
    assert checkout.make("all").returncode == 0
    # What a kill leaves while pip unpacks: the mark, and a package of which a file is missing.
    (checkout.venv / bootstrap.INTERRUPTED.name).touch()
    next(checkout.venv.rglob("warpsmith_probe.py")).unlink()
    result = checkout.make("all")
    assert "making it anew" in result.stdout
    assert checkout.has_package()


def test_it_makes_an_environment_without_its_python_anew(checkout: Checkout) -> None:
    (checkout.venv / "bin").mkdir(parents=True)
    (checkout.venv / "bin/python").symlink_to("/nowhere/python3")
    assert checkout.make("all").returncode == 0
    assert checkout.has_package()


def test_two_at_a_time_install_once(checkout: Checkout) -> None:
    command = [sys.executable, "scripts/bootstrap.py", "all"]
    both = [
        subprocess.Popen(command, cwd=checkout.folder, env=checkout.environment, text=True, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    output = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted("Installed in" in text for text in output) == [False, True]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a user of its own whom the folder refuses")
def test_a_folder_it_may_not_write_is_named(checkout: Checkout) -> None:
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin")
    if python is None:
        pytest.skip("no Python that another user can reach")
    shutil.copytree(checkout.folder, folder := Path("/tmp") / f"read-only-{os.getpid()}")
    try:
        folder.chmod(0o555)
        result = subprocess.run(
            [python, "scripts/bootstrap.py", "all"], cwd=folder, user=65534, text=True, capture_output=True, env={}
        )
    finally:
        shutil.rmtree(folder)
    assert result.returncode == 1
    assert "Permission denied. Check that this checkout may be written" in result.stderr
    assert "Traceback" not in result.stderr


def test_it_refuses_to_start_on_a_full_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bootstrap, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(bootstrap, "NEEDED_BYTES", 10**18)
    with pytest.raises(bootstrap.Stop, match="About 3 GB are needed"):
        bootstrap.check_disk()


def test_pip_on_a_full_disk_is_told_from_other_failures(tmp_path: Path) -> None:
    log = tmp_path / "install.log"
    log.write_text("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device")
    assert "disk is full" in bootstrap.hint(log)


def test_it_says_how_to_do_without_a_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(bootstrap.Stop, match="NO_BROWSER=1"):
        bootstrap.ensure_browser()
