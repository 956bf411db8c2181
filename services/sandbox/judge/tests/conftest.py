from collections.abc import Iterator

import pytest
import torch

from services.sandbox.runners import Runners
from services.sandbox.settings import SandboxSettings


@pytest.fixture(scope="session")
def settings() -> SandboxSettings:
    return SandboxSettings(reference_s=20.0, call_s=60.0)


@pytest.fixture(scope="session")
def runners(settings: SandboxSettings) -> Iterator[Runners]:
    torch.set_num_threads(1)
    with Runners(settings) as opened:
        yield opened
