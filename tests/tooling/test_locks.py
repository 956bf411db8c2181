"""The lock files belong to pyproject.toml and to no machine."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.lock import CONSTRAINTS, FOLDER, ROLES, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKS = sorted(FOLDER.glob("*.txt"))


def locked(path: Path) -> dict[str, set[str]]:
    """Package name to its pinned versions; more than one where Pythons differ."""
    pins: dict[str, set[str]] = {}
    for line in path.read_text().splitlines():
        if text := line.split("#")[0].strip():
            requirement = Requirement(text)
            pins.setdefault(canonicalize_name(requirement.name), set()).add(str(requirement.specifier)[2:])
    return pins


def test_each_role_has_its_lock() -> None:
    assert {path.stem for path in LOCKS} == {*ROLES, CONSTRAINTS.stem}


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_it_names_no_host_and_no_folder(path: Path) -> None:
    assert not re.search(r"://|--|(?<![\w.-])/\w|\.(org|com|io)\b", path.read_text())


@pytest.mark.parametrize("role", ROLES)
def test_it_satisfies_pyproject(role: str) -> None:
    pins = locked(FOLDER / f"{role}.txt")
    wanted = PROJECT["dependencies"] + [
        line for extra in ROLES[role] for line in PROJECT["optional-dependencies"][extra]
    ]
    for requirement in map(Requirement, wanted):
        versions = pins.get(canonicalize_name(requirement.name), set())
        assert versions, f"{requirement.name} is not locked: run `make lock`"
        assert all(requirement.specifier.contains(version) for version in versions), requirement


@pytest.mark.parametrize("role", ROLES)
def test_any_two_roles_share_an_environment(role: str) -> None:
    together = locked(CONSTRAINTS)
    for name, versions in locked(FOLDER / f"{role}.txt").items():
        assert versions <= together[name]


def test_the_environment_for_tests_holds_the_demo() -> None:
    assert locked(FOLDER / "all.txt").items() <= locked(FOLDER / "dev.txt").items()


@pytest.mark.parametrize("role", [role for role in ROLES if "torch" in locked(FOLDER / f"{role}.txt")])
def test_torch_and_triton_fit_each_other(role: str) -> None:
    pins = locked(FOLDER / f"{role}.txt")
    assert pins["torch"] == {"2.13.0"}
    assert pins["triton"] == {"3.7.1"}


def test_only_gpu_machines_get_cuda_libraries() -> None:
    with_cuda = {role for role in ROLES if "nvidia-cublas" in locked(FOLDER / f"{role}.txt")}
    assert with_cuda == {"gpu"}
