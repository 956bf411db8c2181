"""Fixtures of the cross-component tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.stack import Stack, running

if TYPE_CHECKING:
    from services.sandbox.runners import Runners
    from services.sandbox.settings import SandboxSettings


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share the stack run in one process, so that there is one stack."""
    for item in items:
        if "stack" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("stack"))


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The whole stack, started once: `stack.url`, sign in with `tests.stack.USERNAME` and `PASSWORD`."""
    with running(tmp_path_factory.mktemp("stack") / "home") as started:
        yield started


@pytest.fixture(scope="session")
def sandbox_settings() -> SandboxSettings:
    """Limits for tests: a hang ends soon, and a busy machine is borne."""
    from services.sandbox.settings import SandboxSettings

    return SandboxSettings(reference_s=10.0, call_s=120.0)


@pytest.fixture(scope="session")
def runners(sandbox_settings: SandboxSettings) -> Iterator[Runners]:
    """Real zygotes, shared by all tests of one process; torch is imported by those that ask for them."""
    import torch

    from services.sandbox.runners import Runners

    torch.set_num_threads(1)
    with Runners(sandbox_settings) as opened:
        yield opened
