"""Output comparison against a float64 golden, relative to the error of eager mode itself.

An element's error is |y - golden| / (|golden| + rms(golden)). The rms term keeps elements near zero comparable and
makes the measure scale-aware: on softmax over 131072 columns, where every value is about 1e-5, an answer of zeros has
an error of 0.5 and not of 1e-5.

Tolerance of one output, with err(eager) its own largest error against the golden:

| policy   | float32                     | bfloat16, float16           |
|----------|-----------------------------|-----------------------------|
| strict   | max(8 err(eager), 1.2e-7)   | max(8 err(eager), 7.8e-3 or 9.8e-4) |
| standard | max(4 err(eager), 1e-4)     | max(4 err(eager), 1e-2)     |
| relaxed  | max(4 err(eager), 2e-2)     | max(4 err(eager), 5e-2)     |

strict's floor is the dtype's machine epsilon; standard's floors are the tolerances that KernelBench uses. Integers and
bools must be equal to eager's.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from services.contracts import OutputError, TolerancePolicy, Verdict
from services.sandbox.judge.layout import tensor_spec

STRICT_FACTOR = 8.0
STANDARD_FACTOR = 4.0
DOWNGRADE_CEILING = 2e-2
"""tf32 products err up to ~1e-3 and bf16 products up to ~1e-2 at the worst of a million elements."""
_SPREAD = 0.05

_STANDARD_FLOOR = {torch.float64: 1e-8, torch.float32: 1e-4, torch.bfloat16: 1e-2, torch.float16: 1e-2}
_RELAXED_FLOOR = {torch.float64: 1e-4, torch.float32: 2e-2, torch.bfloat16: 5e-2, torch.float16: 5e-2}
_WIDE = frozenset({torch.float64, torch.float32})


@dataclass(frozen=True)
class LeafResult:
    """One output leaf against its reference: the numbers, the verdict (None: it passes) and why."""

    error: OutputError
    verdict: Verdict | None
    message: str = ""


@dataclass(frozen=True)
class ExpectedLeaf:
    """One output of eager mode, prepared once for many comparisons. `finite` None: every element is finite."""

    reference: Tensor
    golden: Tensor
    scale: Tensor
    finite: Tensor | None
    error: float
    """Eager's own largest error against the golden."""


def tolerance_for(policy: TolerancePolicy, dtype: torch.dtype, reference_error: float) -> float:
    """Largest error that a floating-point output may have; see the module's table."""
    epsilon = torch.finfo(dtype).eps
    if policy is TolerancePolicy.STRICT:
        return max(STRICT_FACTOR * reference_error, epsilon)
    floors = _STANDARD_FLOOR if policy is TolerancePolicy.STANDARD else _RELAXED_FLOOR
    return max(STANDARD_FACTOR * reference_error, floors.get(dtype, 2 * epsilon))


def expect(reference: Tensor, golden: Tensor | None) -> ExpectedLeaf:
    """Prepare one output of eager mode for comparisons; `golden` None takes eager itself as the golden."""
    if not reference.is_floating_point():
        return ExpectedLeaf(reference, reference, reference, None, 0.0)
    golden = reference.double() if golden is None else golden
    finite = reference.isfinite()
    if bool(finite.all()) and bool(golden.isfinite().all()):
        scale = golden.abs().add_(_rms(golden))
        return ExpectedLeaf(reference, golden, scale, None, _largest(relative_errors(reference, golden, scale, None)))
    golden = torch.where(finite, golden, reference.double())
    finite &= golden.isfinite()
    scale = golden.abs().add_(_rms(golden[finite]))
    errors = relative_errors(reference, golden, scale, finite)
    return ExpectedLeaf(reference, golden, scale, finite, _largest(errors))


def compare_leaf(path: str, got: Tensor, expected: ExpectedLeaf, policy: TolerancePolicy) -> LeafResult:
    """Compare one output of equal shape and dtype with eager's."""
    reference, golden = expected.reference, expected.golden
    if not reference.is_floating_point():
        return _compare_exactly(path, got, reference)
    tolerance = tolerance_for(policy, reference.dtype, expected.error)
    misplaced = _misplaced_non_finite(got, expected)
    if misplaced is not None:
        return _non_finite(path, got, golden, misplaced, expected.error, tolerance)
    errors = relative_errors(got, golden, expected.scale, expected.finite)
    candidate_error = _largest(errors)
    mismatched = errors > tolerance
    error = _output_error(path, got, golden, errors, mismatched, candidate_error, expected.error, tolerance)
    if not error.mismatched:
        return LeafResult(error, None)
    if candidate_error <= DOWNGRADE_CEILING and _is_spread(reference.dtype, mismatched, golden):
        return LeafResult(error, Verdict.PRECISION_DOWNGRADE, _describe(error, errors.numel()))
    return LeafResult(error, Verdict.WRONG_VALUES, _describe(error, errors.numel()))


def relative_errors(values: Tensor, golden: Tensor, scale: Tensor, finite: Tensor | None) -> Tensor:
    """|y - golden| / scale in float64; 0 where not `finite`, because those are compared by position.

    Where the golden is zero throughout, any other value has an infinite error.
    """
    errors = (values.double() - golden).abs_().div_(scale)
    errors.masked_fill_(errors.isnan() if finite is None else errors.isnan() | ~finite, 0.0)
    return errors


def repeat_difference(first: Tensor, second: Tensor) -> float:
    """Largest relative difference of two answers to the same question; 0.0 when they are bit-equal."""
    if torch.equal(first, second):
        return 0.0
    if not first.is_floating_point():
        return float("inf")
    expected = expect(first, None)
    if _misplaced_non_finite(second, expected) is not None:
        return float("inf")
    return _largest(relative_errors(second, expected.golden, expected.scale, expected.finite))


def _rms(values: Tensor) -> Tensor:
    return values.square().mean().sqrt() if values.numel() else values.new_tensor(0.0)


def _misplaced_non_finite(got: Tensor, expected: ExpectedLeaf) -> Tensor | None:
    """Where NaN or Inf stands and should not, or does not and should; None where all is in place."""
    misplaced = ~got.isfinite()
    if expected.finite is not None:
        reference = expected.reference
        same = (got == reference) | (got.isnan() & reference.isnan())
        misplaced = torch.where(reference.isfinite(), misplaced, ~same)
    return misplaced if bool(misplaced.any()) else None


def _largest(errors: Tensor) -> float:
    return float(errors.max()) if errors.numel() else 0.0


def _is_spread(dtype: torch.dtype, mismatched: Tensor, golden: Tensor) -> bool:
    """Rounding is everywhere: many of the elements that are not zero are off. A missed region is off in one place."""
    return dtype in _WIDE and int(mismatched.sum()) >= max(_SPREAD * int((golden != 0).sum()), 1)


def _compare_exactly(path: str, got: Tensor, reference: Tensor) -> LeafResult:
    mismatched = got != reference
    errors = mismatched.double()
    error = _output_error(path, got, reference, errors, mismatched, _largest(errors), 0.0, 0.0)
    if not error.mismatched:
        return LeafResult(error, None)
    return LeafResult(error, Verdict.WRONG_VALUES, _describe(error, errors.numel()))


def _non_finite(
    path: str, got: Tensor, golden: Tensor, misplaced: Tensor, reference_error: float, tolerance: float
) -> LeafResult:
    errors = misplaced.double()
    error = _output_error(path, got, golden, errors, misplaced, float("inf"), reference_error, tolerance)
    unwritten = bool(got[misplaced].isnan().all())
    message = f"{_describe(error, errors.numel())}; NaN or Inf must stand exactly where eager's do"
    if unwritten:
        message += " (NaN is also what an element that was never written holds)"
    return LeafResult(error, Verdict.NON_FINITE, message)


def _output_error(
    path: str,
    got: Tensor,
    golden: Tensor,
    errors: Tensor,
    mismatched: Tensor,
    candidate_error: float,
    reference_error: float,
    tolerance: float,
) -> OutputError:
    count = int(mismatched.sum())
    worst = [int(place) for place in torch.unravel_index(errors.argmax(), errors.shape)] if count else []
    return OutputError(
        path=path,
        spec=tensor_spec(got),
        candidate_error=candidate_error,
        reference_error=reference_error,
        tolerance=tolerance,
        mismatched=count,
        worst_index=worst,
        worst_got=float(got[tuple(worst)]) if count else None,
        worst_expected=float(golden[tuple(worst)]) if count else None,
    )


def _describe(error: OutputError, numel: int) -> str:
    where = f"output{error.path}"
    share = 100 * error.mismatched / numel
    return (
        f"{where}: {error.mismatched} of {numel} elements differ ({share:.3g} %), worst at {error.worst_index}: "
        f"got {error.worst_got:.6g}, expected {error.worst_expected:.6g}; "
        f"error {error.candidate_error:.2g}, allowed {error.tolerance:.2g}"
    )
