import pytest
import torch

from services.contracts import TolerancePolicy, Verdict
from services.sandbox.judge.compare import LeafResult, compare_leaf, expect, repeat_difference, tolerance_for

STANDARD = TolerancePolicy.STANDARD


def _compare(
    path: str, got: torch.Tensor, reference: torch.Tensor, golden: torch.Tensor | None, policy: TolerancePolicy
) -> LeafResult:
    return compare_leaf(path, got, expect(reference, golden), policy)


def _golden(rows: int = 64, columns: int = 256) -> torch.Tensor:
    return torch.randn(rows, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_eager_itself_passes_every_policy() -> None:
    golden = _golden()
    for policy in TolerancePolicy:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            reference = golden.to(dtype)
            assert _compare("", reference.clone(), reference, golden, policy).verdict is None


def test_comparing_changes_no_answer() -> None:
    golden = _golden()
    reference, got = golden.clone(), golden.clone()
    _compare("", got, reference, golden, STANDARD)
    assert torch.equal(reference, golden)
    assert torch.equal(got, golden)


def test_zeros_fail_where_every_value_is_tiny() -> None:
    golden = torch.softmax(torch.rand(4, 131072, dtype=torch.float64), dim=-1)
    reference = golden.float()
    result = _compare("", torch.zeros_like(reference), reference, golden, STANDARD)
    assert result.verdict is Verdict.WRONG_VALUES
    assert result.error.mismatched == reference.numel()


def test_one_wrong_element_is_found_and_located() -> None:
    golden = _golden()
    got = golden.float()
    got[3, 17] += 1.0
    result = _compare("[0]", got, golden.float(), golden, STANDARD)
    assert result.verdict is Verdict.WRONG_VALUES
    assert result.error.worst_index == [3, 17]
    assert result.error.mismatched == 1
    assert "output[0]" in result.message


def test_bfloat16_products_in_a_float32_matmul_are_a_downgrade() -> None:
    generator = torch.Generator().manual_seed(1)
    left, right = (torch.randn(256, 256, generator=generator) for _ in range(2))
    golden = left.double() @ right.double()
    got = (left.bfloat16().double() @ right.bfloat16().double()).float()
    assert _compare("", got, left @ right, golden, STANDARD).verdict is Verdict.PRECISION_DOWNGRADE
    assert _compare("", got, left @ right, golden, TolerancePolicy.RELAXED).verdict is None


def test_a_bfloat16_op_is_judged_by_eagers_own_error() -> None:
    golden = _golden()
    reference = (golden * (1 + 0.02 * torch.sign(golden))).bfloat16()
    result = _compare("", (golden * 0.98).bfloat16(), reference, golden, STANDARD)
    assert result.error.reference_error > 0.009
    assert result.verdict is None


def test_strict_refuses_what_standard_lets_pass() -> None:
    golden = _golden()
    got = (golden * (1 + 5e-5)).float()
    assert _compare("", got, golden.float(), golden, STANDARD).verdict is None
    assert _compare("", got, golden.float(), golden, TolerancePolicy.STRICT).verdict is not None


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_non_finite_values_are_refused(value: float) -> None:
    golden = _golden()
    got = golden.float()
    got[0, 0] = value
    assert _compare("", got, golden.float(), golden, STANDARD).verdict is Verdict.NON_FINITE


def test_infinities_of_the_op_are_compared_by_position_and_sign() -> None:
    golden = _golden()
    golden[:, 0] = float("-inf")
    reference = golden.float()
    assert _compare("", reference.clone(), reference, golden, STANDARD).verdict is None
    for wrong in (0.0, float("inf"), float("nan")):
        got = reference.clone()
        got[5, 0] = wrong
        assert _compare("", got, reference, golden, STANDARD).verdict is Verdict.NON_FINITE


def test_integers_are_compared_exactly() -> None:
    reference = torch.arange(12).view(3, 4)
    got = reference.clone()
    assert _compare("", got, reference, None, STANDARD).verdict is None
    got[2, 1] += 1
    result = _compare("", got, reference, None, STANDARD)
    assert result.verdict is Verdict.WRONG_VALUES
    assert result.error.worst_index == [2, 1]


def test_bools_and_scalars_are_compared() -> None:
    assert _compare("", torch.tensor(True), torch.tensor(False), None, STANDARD).verdict is Verdict.WRONG_VALUES
    assert _compare("", torch.tensor(1.0), torch.tensor(1.0), None, STANDARD).verdict is None


def test_an_all_zero_output_accepts_only_zeros() -> None:
    zeros = torch.zeros(8)
    assert _compare("", zeros.clone(), zeros, zeros.double(), STANDARD).verdict is None
    assert _compare("", zeros + 1e-6, zeros, zeros.double(), STANDARD).verdict is Verdict.WRONG_VALUES


def test_tolerances_are_those_of_the_table() -> None:
    assert tolerance_for(STANDARD, torch.float32, 0.0) == 1e-4
    assert tolerance_for(STANDARD, torch.bfloat16, 0.01) == pytest.approx(0.04)
    assert tolerance_for(TolerancePolicy.STRICT, torch.float32, 1e-6) == pytest.approx(8e-6)
    assert tolerance_for(TolerancePolicy.RELAXED, torch.float32, 0.0) == 2e-2


def test_repeats_are_compared_bit_by_bit_first() -> None:
    first = torch.randn(8)
    assert repeat_difference(first, first.clone()) == 0.0
    assert 0 < repeat_difference(first, first * (1 + 1e-6)) < 1e-5
    assert repeat_difference(first, torch.full((8,), float("nan"))) == float("inf")
    assert repeat_difference(torch.arange(3), torch.tensor([0, 1, 3])) == float("inf")


def test_one_slightly_wrong_element_is_not_called_rounding() -> None:
    golden = _golden()
    got = golden.float()
    got[3, 17] += 0.01
    assert _compare("", got, golden.float(), golden, STANDARD).verdict is Verdict.WRONG_VALUES
