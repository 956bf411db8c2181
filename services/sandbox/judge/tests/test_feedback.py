from services.contracts import (
    Backend,
    ErrorReport,
    Evaluation,
    FamilyResult,
    Frame,
    IsolationLevel,
    KernelReport,
    LintFinding,
    OutputError,
    TargetCompile,
    TensorSpec,
    Verdict,
)
from services.sandbox.judge.feedback import write_feedback

SPEC = TensorSpec(shape=[4], stride=[1], dtype="float32")
BASE = {
    "candidate_id": "7",
    "backend": Backend.HOST,
    "target": "h200",
    "isolation": IsolationLevel.FULL,
    "evaluator_version": "1",
}


def test_an_error_names_the_line_and_its_code() -> None:
    error = ErrorReport(
        kind="NameError", message="no x", line=2, frames=[Frame(line=2, function="forward")], detail="a caret ^"
    )
    text = write_feedback(
        Evaluation(**BASE, verdict=Verdict.RUNTIME_ERROR, summary="It raised.", error=error), "first\n  y = x\n"
    )
    assert "verdict: runtime error" in text
    assert "line 2: y = x" in text
    assert "a caret ^" in text


def test_a_failed_family_says_how_to_see_it_again() -> None:
    output = OutputError(path="", spec=SPEC, candidate_error=1.0, reference_error=0.0, tolerance=1e-4, mismatched=3)
    families = [
        FamilyResult(workload="default", family="as given", seed=1, passed=True),
        FamilyResult(
            workload="default", family="negated", seed=2, passed=False, outputs=[output], message="3 of 4 differ"
        ),
    ]
    text = write_feedback(Evaluation(**BASE, verdict=Verdict.WRONG_VALUES, summary="Wrong.", families=families), "")
    assert 'evaluate --ref OP.py --cand CANDIDATE.py --family "negated" --seed 2' in text
    assert "3 of 4 differ" in text
    assert "passed input families (1): as given" in text


def test_kernels_hints_and_library_calls_are_listed() -> None:
    compiled = TargetCompile(registers=32, spills=0, shared_bytes=0, num_warps=4, num_stages=3)
    kernel = KernelReport(
        name="double", line=5, launches=1, grid=[8], bytes_read=4096, bytes_written=4096, compiled=compiled
    )
    text = write_feedback(
        Evaluation(
            **BASE,
            verdict=Verdict.DECOY_KERNEL,
            summary="A decoy.",
            kernels=[kernel],
            library_ops={"aten.mm": 1},
            lint=[LintFinding(code="library_call", message="forward leaves torch.mm to PyTorch", line=9)],
        ),
        "",
    )
    assert "kernel double: line 5, 1 launch(es) of grid (8,), reads 4.1 kB, writes 4.1 kB, 32 registers" in text
    assert "left to PyTorch: aten.mm ×1" in text
    assert "hint: line 9: forward leaves torch.mm to PyTorch" in text
    assert "mend: With the kernels switched off" in text
