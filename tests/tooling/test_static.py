"""The static checks of `make lint`, so that one command covers all."""

import pytest

from scripts.lint import checks, run

CHECKS = checks()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CHECKS)
def test_it_finds_nothing(name: str) -> None:
    result = run(CHECKS[name])
    assert result.returncode == 0, result.stdout
