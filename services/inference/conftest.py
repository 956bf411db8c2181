"""Fixtures of the inference service's tests."""

import os
from collections.abc import Iterator

import pytest

from services.inference.settings import load_settings
from services.inference.tests.replay import ReplayServer, serve


@pytest.fixture(autouse=True)
def _no_model_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A developer's own INFERENCE_* and OPENAI_* variables stay out of the tests."""
    for name in list(os.environ):
        if name.startswith(("INFERENCE_", "OPENAI_")):
            monkeypatch.delenv(name)
    load_settings.cache_clear()
    yield
    load_settings.cache_clear()


@pytest.fixture
def server() -> Iterator[ReplayServer]:
    """A replaying model server on loopback."""
    with serve(ReplayServer()) as replay:
        yield replay
