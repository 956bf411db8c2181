"""Each part imports only what its own role's lock installs, so that a worker machine needs no more than its lock."""

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.lint import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
OURS = {"services", "webapp", "tests", "scripts", "bootstrap"}
PARTS: dict[str, list[str]] = {
    "services/contracts": [],
    "services/broker.py": [],
    "services/sandbox": ["sandbox", "gpu"],
    "services/inference": ["inference"],
    "webapp": ["web"],
    "scripts": ["dev", "web", "sandbox", "inference"],
    "tests": list(EXTRAS),
    "benchmarks": list(EXTRAS),
}
# Ops as users write them: they run in the sandbox alone.
SAMPLES = ROOT / "webapp/ops/samples"
# What these bring along on purpose, and is used as a part of them.
BROUGHT = {"celery": {"kombu", "billiard", "redis"}, "import-linter": {"grimp"}, "openai": {"httpx2"}}


def declared(extras: list[str]) -> set[str]:
    """Names of the distributions that a role asks for itself."""
    lines = PROJECT["dependencies"] + [line for extra in extras for line in EXTRAS[extra]]
    names = {canonicalize_name(Requirement(line).name) for line in lines}
    return names.union(*(BROUGHT.get(name, set()) for name in names))


def imported(file: Path) -> Iterator[str]:
    """Top-level names of a file's absolute imports."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]


@pytest.mark.parametrize("part", PARTS)
def test_it_imports_what_its_role_declares(part: str) -> None:
    production, anything = declared(PARTS[part]), declared(list(EXTRAS))
    providers = packages_distributions()
    files = [ROOT / part] if part.endswith(".py") else sorted((ROOT / part).rglob("*.py"))
    strangers = set()
    for file in files:
        if file.parent == SAMPLES:
            continue
        is_test = "tests" in file.parts or file.name == "conftest.py"
        wanted = anything if is_test else production
        for name in imported(file):
            known = name in sys.stdlib_module_names or name in OURS
            if not known and not {canonicalize_name(each) for each in providers.get(name, [name])} & wanted:
                strangers.add((str(file.relative_to(ROOT)), name))
    assert not strangers
