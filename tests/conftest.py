"""Fixtures of the cross-component tests."""

from collections.abc import Iterator

import pytest

from tests.stack import Stack, running


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The whole stack, started once: `stack.url`, sign in with `tests.stack.USERNAME` and `PASSWORD`."""
    with running(tmp_path_factory.mktemp("stack") / "home") as started:
        yield started
