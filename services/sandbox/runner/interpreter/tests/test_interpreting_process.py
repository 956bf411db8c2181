"""Runs each file of cases in a fresh process with TRITON_INTERPRET=1: triton decides at import what its library is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_ROOT = Path(__file__).parents[5]
_CASES = sorted(path for path in (_HERE / "cases").glob("*.py") if path.name not in ("conftest.py", "__init__.py"))


@pytest.mark.parametrize("path", _CASES, ids=lambda path: path.stem)
def test_the_interpreter_agrees_with_torch(path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-c",
        os.devnull,
        "--rootdir",
        str(_ROOT),
        "--import-mode=importlib",
    ]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(_ROOT), "OMP_NUM_THREADS": "1"}
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    command += ["--import-mode=importlib", "-p", "no:cacheprovider", "-p", "no:django", str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_refuses_a_process_whose_triton_was_imported_to_compile() -> None:
    code = "import triton; from services.sandbox.runner import interpreter; interpreter.install()"
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "TRITON_INTERPRET=1 before triton is imported" in done.stderr
