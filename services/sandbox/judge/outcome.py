"""How an evaluation ends early, and who is to blame for a fault of a runner."""

from collections.abc import Iterator
from contextlib import contextmanager

from services.contracts import ErrorReport, Verdict
from services.sandbox.judge.subject import UnsupportedOutput
from services.sandbox.runners import RunnerFault

_OF_A_PROCESS = frozenset(
    {
        Verdict.COMPILE_ERROR,
        Verdict.LOAD_ERROR,
        Verdict.ILLEGAL_MEMORY,
        Verdict.TIMEOUT,
        Verdict.OUT_OF_MEMORY,
    }
)
"""What a candidate's process may say of itself beside a runtime error: a claim of any other verdict is forged."""


class Stop(Exception):
    """The ladder ends here with this verdict. `summary` is one sentence for a person."""

    def __init__(self, verdict: Verdict, summary: str, error: ErrorReport | None = None) -> None:
        super().__init__(summary)
        self.verdict = verdict
        self.summary = summary
        self.error = error


@contextmanager
def blame_candidate(where: str, runtime: Verdict = Verdict.RUNTIME_ERROR) -> Iterator[None]:
    """A fault inside is the candidate's; `where` completes "the candidate failed ...".

    `runtime` is what an exception means there: what ran in the interpreter and raises for the target does not compile.
    """
    try:
        yield
    except RunnerFault as fault:
        verdict = fault.verdict if fault.verdict in _OF_A_PROCESS else runtime
        raise Stop(verdict, f"The candidate failed {where}: {told(fault.report)}", fault.report) from fault


@contextmanager
def blame_op(where: str) -> Iterator[None]:
    """A fault inside is the op's own."""
    try:
        yield
    except UnsupportedOutput as unsupported:
        report = ErrorReport(kind="UnsupportedOutput", message=str(unsupported))
        raise Stop(Verdict.INVALID_REFERENCE, f"The op itself failed {where}: {unsupported}.", report) from unsupported
    except RunnerFault as fault:
        summary = f"The op itself failed {where} ({fault.verdict.label}): {told(fault.report)}"
        raise Stop(Verdict.INVALID_REFERENCE, summary, fault.report) from fault


def told(report: ErrorReport) -> str:
    """An error in one line: kind, message and line."""
    line = f" (line {report.line})" if report.line else ""
    return f"{report.kind}: {report.message}{line}".rstrip()
