"""One set of zygotes for all tests of this folder: they are started once."""

from collections.abc import Iterator

import pytest

from services.sandbox.runners import Runners
from services.sandbox.settings import SandboxSettings


@pytest.fixture(scope="session")
def runners() -> Iterator[Runners]:
    """Runners at the best isolation that this machine has."""
    with Runners(SandboxSettings(tmp_bytes=32 << 20)) as runners:
        yield runners
