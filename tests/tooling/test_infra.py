"""The units and the compose file start the same processes as `manage.py up`."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.lint import ROOT
from webapp.fleet.stack import commands

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "infra/compose.yaml").read_text())
UNITS = {path.stem.removeprefix("warpsmith-"): path for path in (ROOT / "infra/systemd").glob("*.service")}
PROCESSES = ["web", "runs", "beat", "inference", "sandbox"]
# What a deployment may choose for itself.
OWN = {"--bind", "-n", "-s", "--log-level", "--graceful-timeout"}


def essence(command: str) -> set[tuple[str, ...]]:
    """A command's module and options, without those that differ from place to place."""
    words = shlex.split(command)
    words = words[words.index("-m") + 1 :] if "-m" in words else words[words.index("exec") + 1 :]
    options: list[tuple[str, ...]] = []
    for word in words:
        if word.startswith("-") or not options or len(options[-1]) == 2 or not options[-1][0].startswith("-"):
            options.append((word,))
        else:
            options[-1] += (word,)
    return {option for option in options if option[0].split("=")[0] not in OWN}


def compose_command(process: str) -> str:
    """The command of a compose service; a shell line's own words where it has one."""
    command: str = COMPOSE["services"][process]["command"]
    return shlex.split(command)[2] if command.startswith("sh ") else command


def unit_command(path: Path) -> str:
    """The ExecStart of a unit."""
    found = re.search(r"^ExecStart=(.*)$", path.read_text(), re.MULTILINE)
    assert found
    return found[1]


@pytest.mark.parametrize("process", PROCESSES)
def test_a_unit_starts_what_up_starts(process: str) -> None:
    assert essence(unit_command(UNITS[process])) == essence(commands("127.0.0.1", 8000)[process])


@pytest.mark.parametrize("process", PROCESSES)
def test_a_compose_service_starts_what_up_starts(process: str) -> None:
    assert essence(compose_command(process)) == essence(commands("127.0.0.1", 8000)[process])


def test_every_process_of_up_has_its_unit() -> None:
    assert set(UNITS) == set(commands("127.0.0.1", 8000)) - {"broker"} == set(PROCESSES)


def test_only_the_web_gets_database_credentials() -> None:
    with_database = {
        name for name, service in COMPOSE["services"].items() if "DATABASE_URL" in service.get("environment", {})
    }
    assert with_database == {"web", "runs", "beat"}
    for process in ("inference", "sandbox"):
        assert "web.env" not in UNITS[process].read_text()


def test_the_sandbox_reaches_no_outer_network() -> None:
    assert COMPOSE["services"]["sandbox"]["networks"] == ["inner"]
    assert COMPOSE["networks"]["inner"]["internal"] is True
