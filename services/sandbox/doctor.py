"""What a sandbox worker needs, what this machine has, and how to mend each lack."""

import importlib.util
import os
import re
import shutil
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from services.contracts import EvaluateRequest, IsolationLevel, OpSpec, Verdict
from services.sandbox.isolation import IsolationRefused, probe
from services.sandbox.judge.ladder import evaluate
from services.sandbox.runners import InfrastructureFault, Runners
from services.sandbox.settings import SandboxSettings

_OP = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2


def get_inputs():
    return [torch.randn(64, 100)]


def get_init_inputs():
    return []
"""
_CANDIDATE = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_twice_kernel(x, y, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y + offsets, tl.maximum(tl.load(x + offsets, mask=mask), 0.0) * 2, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu_twice_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
"""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. `mend` says what to do where it is not well."""

    name: str
    well: bool
    said: str
    mend: str = ""


def diagnose(settings: SandboxSettings) -> Iterator[Check]:
    """Every check in order; the last one judges a real candidate from end to end."""
    yield from _packages()
    yield _isolation(settings)
    yield _target_tools()
    yield _memory(settings)
    yield _end_to_end(settings)


def _packages() -> Iterator[Check]:
    """Presence of each package of the sandbox extra, and the version of those that are pinned."""
    for requirement in _requirements():
        name, _, pin = re.sub(r"[\[;>~! ].*", "", requirement).partition("==")
        mend = f"pip install '{requirement}'"
        try:
            installed = version(name)
        except PackageNotFoundError:
            yield Check(name, False, "not installed", mend)
            continue
        locked = not pin or installed.partition("+")[0] == pin
        well = locked or _runs(name, installed)
        said = installed if locked else f"{installed}; {pin} is what the lock file has"
        yield Check(name, well, said, "" if well else mend)


def _runs(name: str, installed: str) -> bool:
    """Whether another version than the locked one is within what was tried: torch 2.11 to 2.13, Triton 3.6 to 3.9."""
    oldest, newest = {"torch": ((2, 11), (2, 13)), "triton": ((3, 6), (3, 9))}.get(name, ((), ()))
    found = tuple(int(part) for part in re.findall(r"\d+", installed)[:2])
    return bool(oldest) and oldest <= found <= newest


def _requirements() -> list[str]:
    """Of the sandbox extra: from the installed package, or from the source tree's pyproject.toml."""
    try:
        listed = [line.partition(";") for line in requires("warpsmith") or []]
        return [requirement.strip() for requirement, _, marker in listed if "sandbox" in marker]
    except PackageNotFoundError:
        project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
        return list(project["project"]["optional-dependencies"]["sandbox"])


def _isolation(settings: SandboxSettings) -> Check:
    try:
        isolation = probe(settings)
    except IsolationRefused as refused:
        return Check("isolation", False, "none", str(refused))
    full = isolation.level is IsolationLevel.FULL
    return Check("isolation", full, f"{isolation.level}: {isolation.note}", "" if full else "See SECURITY.md.")


def _target_tools() -> Check:
    """Triton's wheel brings the assembler and cuobjdump; a distribution's package may not."""
    found = importlib.util.find_spec("triton")
    folder = Path(found.origin).parent / "backends/nvidia/bin" if found and found.origin else Path()
    missing = [tool for tool in ("ptxas", "cuobjdump") if not (folder / tool).exists() and not shutil.which(tool)]
    if missing:
        return Check("target compiler", False, f"no {' and no '.join(missing)}", "Install triton from its wheel.")
    return Check("target compiler", True, "ptxas and cuobjdump of triton's wheel")


def _memory(settings: SandboxSettings) -> Check:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    well = total > settings.memory_bytes
    said = f"{total / 2**30:.0f} GiB; one runner may take {settings.memory_bytes / 2**30:.0f} GiB"
    return Check("memory", well, said, "" if well else "Set SANDBOX_MEMORY_BYTES lower.")


def _end_to_end(settings: SandboxSettings) -> Check:
    """Judge a right candidate."""
    start = time.monotonic()
    request = EvaluateRequest(
        candidate_id="doctor", op=OpSpec(op_id="doctor", name="doctor", source=_OP), source=_CANDIDATE
    )
    try:
        with Runners(settings) as runners:
            evaluation = evaluate(request, runners, settings=settings)
    except InfrastructureFault as fault:
        return Check("judging a candidate", False, str(fault), "Mend what is said above first.")
    seconds = time.monotonic() - start
    well = evaluation.verdict is Verdict.PASSED
    said = f"{evaluation.verdict.label} in {seconds:.1f} s"
    return Check("judging a candidate", well, said, "" if well else evaluation.summary)
