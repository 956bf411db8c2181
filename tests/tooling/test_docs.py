"""The documents name what exists."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from scripts.lint import ROOT

FOLDERS = "services|webapp|infra|scripts|docs|tests|requirements"
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), ROOT / "infra/README.md"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_its_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text()):
        assert (document.parent / target).exists(), target


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_paths_it_names_exist(document: Path) -> None:
    for path in re.findall(
        r"`((?:services|webapp|infra|scripts|docs|tests|requirements)/[\w./-]+)`", document.read_text()
    ):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_make_targets_it_names_exist(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", document.read_text(), re.MULTILINE))
    assert named <= targets


def test_every_direct_dependency_is_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {
        Requirement(line).name
        for group in [project["dependencies"], *project["optional-dependencies"].values()]
        for line in group
    }
    text = (ROOT / "docs/dependencies.md").read_text()
    assert not {name for name in wanted if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)}


def test_the_agents_page_covers_each_common_change() -> None:
    text = (ROOT / "AGENTS.md").read_text()
    for change in ("verdict", "finding", "proposer", "page", "reward"):
        assert f"**Add a {change}**" in text
