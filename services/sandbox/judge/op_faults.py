"""Findings about an op that fails on its own inputs: what it raised, where it hangs, where it is NaN."""

from collections.abc import Callable, Sequence

from torch import Tensor

from services.contracts import Finding, Verdict
from services.sandbox.judge.findings import finding
from services.sandbox.judge.layout import clone_layout, core_view
from services.sandbox.judge.outcome import told
from services.sandbox.judge.subject import Answer, Subject, UnsupportedOutput
from services.sandbox.replies import Tree
from services.sandbox.runners import RunnerFault

_RANGES: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
    ("positive values (torch.rand(...) + 0.1)", lambda values: values.abs() + 0.1),
    ("values in [0, 1] (torch.rand(...))", lambda values: values.abs().clamp(0.0, 1.0)),
    ("values in [-1, 1] (torch.rand(...) * 2 - 1)", lambda values: values.clamp(-1.0, 1.0)),
    ("values 100 times smaller", lambda values: values * 0.01),
)


def fault_finding(where: str, fault: RunnerFault, limit_s: float) -> Finding:
    """A fault of the op as a blocker; `where` starts its code: "load", "get_inputs" or "forward"."""
    report = fault.report
    if fault.verdict is Verdict.OUT_OF_MEMORY:
        return finding("out_of_memory", f"{where} ran out of memory: {told(report)}", report.line)
    if fault.verdict is Verdict.TIMEOUT:
        return finding(f"{where}_timeout", f"{where} did not end within {limit_s:.0f} s", report.line)
    frames = "".join(f"\n  in {frame.function}, line {frame.line}: {frame.code}" for frame in report.frames)
    return finding(f"{where}_failed", f"{told(report)}{frames}", report.line)


def nan_finding(subject: Subject, tree: Tree, values: Sequence[Tensor], answer: Answer) -> Finding:
    """Where the op is NaN on its own inputs, and a range of inputs for which it is not."""
    bad = [int(output.isnan().sum()) if output.is_floating_point() else 0 for output in answer.outputs]
    numel = sum(output.numel() for output in answer.outputs)
    where = ", ".join(
        f"output{path} first at {output.isnan().nonzero()[0].tolist()}"
        for path, output, count in zip(answer.tree.paths(), answer.outputs, bad, strict=True)
        if count
    )
    detail = f"{sum(bad)} of {numel} elements ({100 * sum(bad) / numel:.3g} %): {where}"
    return finding("nan_output", detail, mend=_finite_range(subject, tree, values))


def _finite_range(subject: Subject, tree: Tree, values: Sequence[Tensor]) -> str:
    """Try a few ranges of the inputs and name the first that gives no NaN."""
    for told_range, change in _RANGES:
        tried = [clone_layout(value) for value in values]
        for value in tried:
            if value.is_floating_point():
                core_view(value).copy_(change(core_view(value)))
        try:
            outputs = subject.ask(tree, tried).outputs
        except (RunnerFault, UnsupportedOutput):
            continue
        if not any(bool(output.isnan().any()) for output in outputs if output.is_floating_point()):
            return f"With {told_range} it gives no NaN."
    return ""
