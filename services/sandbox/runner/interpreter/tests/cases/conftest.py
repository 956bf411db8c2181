"""Cases run in a process of their own that interprets kernels: see test_interpreting_process.py."""

import os

import pytest

from services.sandbox.runner import interpreter

if os.environ.get("TRITON_INTERPRET") == "1":  # pytest also reads this file in the process that collects every test
    interpreter.install()


@pytest.fixture(params=["batches", "one by one"], autouse=True)
def _batching(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every case must come out the same whether programs run together or alone."""
    from services.sandbox.runner.interpreter import launch

    if request.param == "one by one":
        monkeypatch.setattr(launch, "LANES", 1)
        monkeypatch.setattr(launch, "FIRST_BATCH", 1)
