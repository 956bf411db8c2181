"""Fixtures of the cross-component tests."""

from collections.abc import Iterator

import pytest

from tests.stack import Stack, running


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
