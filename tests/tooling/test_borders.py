"""The import contracts catch what they are there for."""

import shutil
import tomllib
from pathlib import Path

import pytest

from scripts.lint import CHECK_BORDERS, ROOT, run

SERVICES = {path.parent.name for path in (ROOT / "services").glob("*/__init__.py")}

VIOLATIONS = {
    "services/sandbox/settings.py": ("import django", "Services never import Django or the web"),
    "services/contracts/base.py": ("import torch", "The contracts import pydantic alone"),
    "services/broker.py": ("import services.inference", "The broker imports no service"),
    "services/sandbox/__init__.py": ("import services.inference", "The sandbox imports no other service"),
    "services/inference/__init__.py": ("import services.sandbox", "Inference imports no other service"),
    "services/sandbox/runner/__init__.py": ("import pydantic", "What runs beside user code"),
    "webapp/urls.py": ("import services.sandbox", "The web imports from services only"),
}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources that a test may spoil."""
    folder = tmp_path_factory.mktemp("borders")
    for name in ("services", "webapp", "scripts"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.mark.parametrize("path", VIOLATIONS)
def test_it_catches_an_import_over_a_border(path: str, checkout: Path) -> None:
    statement, contract = VIOLATIONS[path]
    file = checkout / path
    sound = file.read_text()
    file.write_text(f"{statement}\n{sound}")
    try:
        result = run(CHECK_BORDERS, cwd=checkout)
    finally:
        file.write_text(sound)
    assert result.returncode == 1, result.stdout
    broken = result.stdout.split("Broken contracts")[1]
    assert contract in broken


def test_every_service_has_a_border() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    fenced = {contract.get("source_module") for contract in config["tool"]["importlinter"]["contracts"]}
    assert {f"services.{name}" for name in SERVICES} <= fenced
