"""The text that a person and the next proposer turn read: what happened, where, and how to see it again."""

from collections.abc import Iterator

from services.contracts import Evaluation, FamilyResult, KernelReport, StageStatus, Verdict
from services.sandbox.judge.families import DESCRIPTIONS, Family
from services.sandbox.judge.roofline import describe_bytes

_MENDS: dict[Verdict, str] = {
    Verdict.NO_GENERATED_KERNEL: "Launch at least one @triton.jit kernel of your own in forward and return its result.",
    Verdict.DECOY_KERNEL: "With the kernels switched off the output stayed the same: return what the kernels compute.",
    Verdict.INPUT_MUTATED: "Write to fresh memory (torch.empty_like(x)); the inputs belong to the caller.",
    Verdict.PRECISION_DOWNGRADE: (
        "The op is float32: multiply in float32 (tl.dot(..., input_precision='ieee' or 'tf32x3')) and accumulate in "
        "float32, or replace the approximation by the exact formula."
    ),
    Verdict.NONDETERMINISTIC: "The same inputs gave different answers: look for races, atomics and unwritten memory.",
    Verdict.NON_FINITE: "Write every element of the output; give masked lanes the neutral value of the reduction.",
    Verdict.ILLEGAL_MEMORY: "Mask every tl.load and tl.store against the size of that tensor.",
    Verdict.STATE_MISMATCH: "Give ModelNew parameters and buffers of the same names and shapes as Model's.",
    Verdict.TIMEOUT: "Use larger blocks and fewer programs; look for loops that do not end.",
    Verdict.INFRASTRUCTURE: "This is not the candidate's fault; it is judged again.",
}


def write_feedback(evaluation: Evaluation, source: str) -> str:
    """Structured text for any outcome, from the evaluation's own fields and the candidate's source."""
    sections = [
        [f"verdict: {evaluation.verdict.label}", evaluation.summary],
        list(_error_lines(evaluation, source)),
        list(_family_lines(evaluation)),
        list(_kernel_lines(evaluation)),
        list(_estimate_lines(evaluation)),
        [
            f"hint: line {item.line}: {item.message}" if item.line else f"hint: {item.message}"
            for item in evaluation.lint
        ],
        [f"mend: {_MENDS[evaluation.verdict]}"] if evaluation.verdict in _MENDS else [],
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def _error_lines(evaluation: Evaluation, source: str) -> Iterator[str]:
    error = evaluation.error
    if error is None:
        return
    yield f"error: {error.kind}: {error.message}"
    if error.kernel:
        yield f"kernel: {error.kernel}"
    if error.line:
        yield f"line {error.line}: {_code(source, error.line)}"
    for frame in error.frames:
        yield f"  in {frame.function}, line {frame.line}: {frame.code or _code(source, frame.line)}"
    if error.detail:
        yield error.detail


def _code(source: str, line: int) -> str:
    lines = source.splitlines()
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""


def _family_lines(evaluation: Evaluation) -> Iterator[str]:
    judged = [result for result in evaluation.families if not result.skipped]
    passed = [result.family for result in judged if result.passed]
    failed = [result for result in judged if not result.passed]
    if failed:
        yield from _failed_family(failed[0], evaluation.summary)
    if failed[1:]:
        yield f"also failed: {', '.join(result.family for result in failed[1:])}"
    if passed:
        yield f"passed input families ({len(passed)}): {', '.join(passed)}"
        yield from _accuracy(judged)
    for result in evaluation.families:
        if result.skipped:
            yield f"skipped input family {result.family}: {result.skipped}"


def _failed_family(result: FamilyResult, summary: str) -> Iterator[str]:
    yield f"failed input family: {result.family} ({DESCRIPTIONS[Family(result.family)]}), seed {result.seed}"
    if result.message and result.message not in summary:
        yield result.message
    for output in result.outputs:
        if output.mismatched:
            share = 100 * output.mismatched / output.spec.numel
            eager = f"eager's own error {output.reference_error:.2g}"
            yield f"output{output.path} is {output.spec}: {share:.3g} % differ; {eager}"
    yield (
        f"see it again: python -m services.sandbox evaluate --ref OP.py --cand CANDIDATE.py "
        f'--family "{result.family}" --seed {result.seed}'
    )


def _accuracy(judged: list[FamilyResult]) -> Iterator[str]:
    outputs = [output for result in judged if result.passed for output in result.outputs]
    if outputs:
        worst = max(outputs, key=lambda output: output.candidate_error / (output.tolerance or 1.0))
        yield (
            f"largest error {worst.candidate_error:.2g} against float64 (eager {worst.reference_error:.2g}, "
            f"allowed {worst.tolerance:.2g})"
        )


def _kernel_lines(evaluation: Evaluation) -> Iterator[str]:
    for kernel in evaluation.kernels:
        yield f"kernel {kernel.name}: {', '.join(_kernel_facts(kernel))}"
    if evaluation.library_ops:
        calls = ", ".join(f"{name} ×{count}" for name, count in sorted(evaluation.library_ops.items()))
        yield f"left to PyTorch: {calls}"


def _kernel_facts(kernel: KernelReport) -> Iterator[str]:
    if kernel.line:
        yield f"line {kernel.line}"
    yield f"{kernel.launches} launch(es) of grid {tuple(kernel.grid)}"
    if kernel.bytes_read is not None and kernel.bytes_written is not None:
        yield f"reads {describe_bytes(kernel.bytes_read)}, writes {describe_bytes(kernel.bytes_written)}"
    if kernel.flops:
        yield f"{kernel.flops / 1e6:.4g} MFLOP in tl.dot"
    if kernel.compiled:
        compiled = kernel.compiled
        yield f"{compiled.registers} registers, {compiled.spills} spills"
        yield f"{compiled.shared_bytes} bytes of shared memory"
        yield f"{compiled.num_warps} warps, {compiled.num_stages} stages"
        if compiled.features:
            yield "uses " + ", ".join(compiled.features)


def _estimate_lines(evaluation: Evaluation) -> Iterator[str]:
    if evaluation.timing:
        timing = evaluation.timing
        yield (
            f"measured on {timing.gpu}: {timing.ratio:.3g}× {timing.baseline} "
            f"({timing.ratio_low:.3g} to {timing.ratio_high:.3g})"
        )
    if evaluation.estimate:
        estimate = evaluation.estimate
        yield f"predicted for {estimate.target}, not measured: {estimate.predicted_speedup:.3g}× eager"
        yield (
            f"  candidate {estimate.candidate_us:.4g} µs, eager {estimate.reference_us:.4g} µs, "
            f"roofline floor {estimate.floor_us:.4g} µs"
        )
        yield f"  {estimate.sentence}"
    if evaluation.estimate_error:
        yield f"no prediction: {evaluation.estimate_error}"
    yield from (
        f"{result.stage} {result.status}: {result.note}"
        for result in evaluation.stages
        if result.note and result.status is not StageStatus.FAILED
    )
