"""How a call into a runner can fail, and whose fault each way is."""

import re
import signal
from pathlib import Path
from typing import Any

from services.contracts import ErrorReport, Fault, Frame, Verdict
from services.sandbox.child import Child
from services.sandbox.replies import shown
from services.sandbox.runner import wire
from services.sandbox.settings import SandboxSettings
from services.sandbox.zygote import Ended, EndReason

_FAULT_FRAME = re.compile(r'File "[^"]*/(?:op|candidate)\.py", line (\d+) in (\S+)')
_NO_MEMORY = re.compile(r"bad_alloc|MemoryError|allocate memory")
_CRASHES = {signal.SIGSEGV, signal.SIGBUS}
_FRAMES = 20
_TEXT = 8000


class RunnerFault(Exception):
    """What the process did wrong, already classified as a candidate's fault; for a reference, the judge renames it."""

    def __init__(self, verdict: Verdict, report: ErrorReport) -> None:
        super().__init__(f"{verdict}: {report.kind}: {report.message}")
        self.verdict = verdict
        self.report = report


class InfrastructureFault(Exception):
    """Our own failure: no zygote, no memory, a process killed by someone else. Never blamed on user code."""


Fatal = RunnerFault | InfrastructureFault


def reported(error: Any) -> RunnerFault:
    """A fault that the process itself reports. ProtocolError where it is none or claims to be ours."""
    try:
        verdict = Verdict(error["verdict"])
        report = _bounded(ErrorReport.model_validate(error["report"]))
    except (KeyError, TypeError, ValueError) as invalid:
        raise wire.ProtocolError(f"not a fault: {invalid}") from None
    if verdict.fault is not Fault.CANDIDATE:
        raise wire.ProtocolError(f"a process does not judge itself {verdict}")
    return RunnerFault(verdict, report)


def _bounded(report: ErrorReport) -> ErrorReport:
    frames = [
        frame.model_copy(update={"code": shown(frame.code, 500), "function": shown(frame.function, 200)})
        for frame in report.frames[-_FRAMES:]
    ]
    cut = {"message": shown(report.message, _TEXT), "detail": shown(report.detail, _TEXT)}
    names = {"kind": shown(report.kind, 100), "kernel": shown(report.kernel, 200)}
    return report.model_copy(update={**cut, **names, "frames": frames})


def timed_out(call: str, wall_s: float, fault_text: str) -> RunnerFault:
    """The deadline passed; `fault_text` is faulthandler's traceback of where it was."""
    message = f"{_doing(call)} did not end within {wall_s:g} s"
    return RunnerFault(Verdict.TIMEOUT, _located("Timeout", message, fault_text))


def ended(call: str, end: Ended, child: Child, settings: SandboxSettings, oom_killed: bool) -> Fatal:
    """The process ended before it answered: RunnerFault, or InfrastructureFault where user code cannot have done it."""
    doing, text = _doing(call), child.fault_text
    gigabytes = settings.memory_bytes / (1 << 30)
    if end.reason is EndReason.LOST:
        return InfrastructureFault(f"the sandbox's own process ended during {doing}")
    if end.reason is EndReason.MEMORY:
        message = f"{doing} used more than the {gigabytes:g} GiB that one candidate may use"
        return RunnerFault(Verdict.OUT_OF_MEMORY, _located("MemoryLimit", message, text))
    if end.reason is EndReason.PROCESSES:
        message = f"{doing} started more than the {settings.processes} processes that one candidate may have"
        return RunnerFault(Verdict.RUNTIME_ERROR, _located("ProcessLimit", message, text))
    if end.code >= 0:
        message = f"the process ended itself with exit code {end.code} during {doing}"
        return RunnerFault(Verdict.RUNTIME_ERROR, _located("ProcessExit", message, text))
    return _signalled(signal.Signals(-end.code), doing, end, child, oom_killed)


def oom_kills() -> int | None:
    """How often this machine's kernel has killed for want of memory; None where it does not say."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)


def _signalled(number: signal.Signals, doing: str, end: Ended, child: Child, oom_killed: bool) -> Fatal:
    text, name = child.fault_text, number.name
    if number in _CRASHES:
        message = f"{doing} touched memory that is not its own ({name})"
        return RunnerFault(Verdict.ILLEGAL_MEMORY, _located(name, message, text))
    if number is signal.SIGXCPU:
        return RunnerFault(Verdict.TIMEOUT, _located(name, f"{doing} used up its CPU time", text))
    if number is signal.SIGKILL and end.reason is EndReason.KILLED:
        message = f"{doing} closed the process's connection to the judge"
        return RunnerFault(Verdict.RUNTIME_ERROR, _located("ConnectionClosed", message, text))
    if number is signal.SIGKILL and oom_killed:
        return InfrastructureFault(f"the machine ran out of memory during {doing}")
    if number is signal.SIGABRT and _NO_MEMORY.search(text + child.printed):
        return RunnerFault(Verdict.OUT_OF_MEMORY, _located(name, f"{doing} ran out of memory", text))
    return RunnerFault(Verdict.RUNTIME_ERROR, _located(name, f"the process was ended by {name} during {doing}", text))


def _located(kind: str, message: str, fault_text: str) -> ErrorReport:
    """A report whose frames come from faulthandler, which lists the innermost first."""
    found = _FAULT_FRAME.findall(fault_text)[:_FRAMES]
    frames = [Frame(line=int(line), function=function) for line, function in reversed(found)]
    return ErrorReport(kind=kind, message=message, line=frames[-1].line if frames else None, frames=frames)


def _doing(call: str) -> str:
    return {
        "load": "importing and building the module",
        "make_inputs": "get_inputs()",
        "forward": "forward()",
        "trace": "tracing forward()",
        "compile": "compiling the kernels",
    }.get(call, "copying tensors")
