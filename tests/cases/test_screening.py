"""Every kind of op that users upload is screened with the outcome that its kind deserves."""

from pathlib import Path

import pytest

from services.contracts import OpSpec, ScreeningReport, ScreenRequest, ScreenStatus
from services.sandbox.judge.screening import screen
from services.sandbox.runners import Runners
from services.sandbox.settings import SandboxSettings

OPS = Path(__file__).parent / "ops"
ACCEPTED, REFUSED = ScreenStatus.ACCEPTED, ScreenStatus.REFUSED

EXPECTED: dict[str, tuple[ScreenStatus, set[str]]] = {
    "int_labels_cross_entropy": (ACCEPTED, set()),
    "plain_tensor_state_rnn": (ACCEPTED, {"plain_tensor_attribute"}),
    "always_zero": (REFUSED, {"output_ignores_input", "degenerate_zeros"}),
    "tiny_softmax_values": (ACCEPTED, {"all_positive_inputs"}),
    "zero_init_affine": (ACCEPTED, set()),
    "dropout_in_train_mode": (ACCEPTED, {"random_in_train_mode"}),
    "bernoulli_op": (REFUSED, {"all_positive_inputs", "random_output"}),
    "uninitialised_output": (REFUSED, {"unspecified_values"}),
    "empty_inputs": (REFUSED, {"empty_inputs"}),
    "inplace_on_input": (REFUSED, {"mutates_input"}),
    "nan_reference": (REFUSED, {"nan_output"}),
    "tuple_and_dict_output": (ACCEPTED, set()),
    "non_tensor_inputs": (ACCEPTED, {"non_tensor_inputs"}),
    "transposed_non_contiguous": (ACCEPTED, {"non_contiguous_inputs"}),
    "expanded_input": (ACCEPTED, {"expanded_input"}),
    "bool_mask": (ACCEPTED, set()),
    "half_the_work_mse": (ACCEPTED, {"all_positive_inputs"}),
    "identity_relu": (ACCEPTED, {"all_positive_inputs"}),
    "module_global_shapes": (ACCEPTED, set()),
    "cuda_device_in_source": (REFUSED, {"cuda_device"}),
    "weight_norm_and_buffers": (ACCEPTED, {"differs_in_train_mode"}),
    "complex_fft": (REFUSED, {"complex_output"}),
    "bf16_gemm_bias_gelu": (ACCEPTED, set()),
    "recompute_hang": (REFUSED, {"forward_timeout"}),
}

SIZE_HINTS = {"launch_bound"}
"""Says how small an op is on the target, not what kind it is."""


@pytest.fixture(scope="module")
def report_of(runners: Runners, sandbox_settings: SandboxSettings) -> dict[str, ScreeningReport]:
    """Each op is screened once, by all in one pair of processes: none may disturb the next."""
    return {name: _screen(name, runners, sandbox_settings) for name in EXPECTED}


def _screen(name: str, runners: Runners, sandbox_settings: SandboxSettings) -> ScreeningReport:
    source = (OPS / f"{name}.py").read_text()
    return screen(ScreenRequest(op=OpSpec(op_id=name, name=name, source=source)), runners, settings=sandbox_settings)


def test_every_op_has_an_expected_outcome() -> None:
    assert set(EXPECTED) == {path.stem for path in OPS.glob("*.py")}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_outcome_is_the_expected_one(name: str, report_of: dict[str, ScreeningReport]) -> None:
    status, codes = EXPECTED[name]
    report = report_of[name]
    assert (report.status, {finding.code for finding in report.findings} - SIZE_HINTS) == (status, codes)
    assert all(finding.mend for finding in report.findings)


@pytest.mark.parametrize("name", [name for name, (status, _) in EXPECTED.items() if status is ACCEPTED])
def test_an_accepted_op_catches_every_mutant_and_has_facts(name: str, report_of: dict[str, ScreeningReport]) -> None:
    report = report_of[name]
    assert [item.mutant for item in report.mutants if not item.caught] == []
    assert {"zeros", "constant"} <= {item.mutant for item in report.mutants}
    assert report.facts is not None
    assert report.facts.moved_bytes > 0
    assert report.facts.eager_us is not None
    assert report.facts.floor_us is not None
    assert report.facts.eager_us >= report.facts.floor_us * 0.5
    assert report.graph is not None or report.graph_error


def test_a_cuda_device_is_named_by_its_line_with_its_mend(report_of: dict[str, ScreeningReport]) -> None:
    findings = report_of["cuda_device_in_source"].findings
    assert [finding.line for finding in findings] == [8, 13]
    assert all("device=x.device" in finding.mend for finding in findings)


def test_a_nan_is_located_and_a_range_suggested(report_of: dict[str, ScreeningReport]) -> None:
    (finding,) = report_of["nan_reference"].findings
    assert "of 512 elements" in finding.detail
    assert "With positive values" in finding.mend


def test_scalars_are_named(report_of: dict[str, ScreeningReport]) -> None:
    facts = report_of["non_tensor_inputs"].facts
    assert facts is not None
    assert facts.scalars == ["scale=0.125", "causal=True", "shift=3"]


def test_a_hang_is_told_with_its_limit(report_of: dict[str, ScreeningReport]) -> None:
    (finding,) = report_of["recompute_hang"].findings
    assert "did not end within 10 s" in finding.detail


def test_complex_outputs_are_refused_in_plain_words(report_of: dict[str, ScreeningReport]) -> None:
    (finding,) = report_of["complex_fft"].findings
    assert "complex outputs are not supported yet" in finding.detail


def test_the_nested_structure_is_kept(report_of: dict[str, ScreeningReport]) -> None:
    facts = report_of["tuple_and_dict_output"].facts
    assert facts is not None
    assert [spec.dtype for spec in facts.outputs] == ["float32", "int64", "float32", "float32"]


def test_strides_of_the_inputs_are_kept(report_of: dict[str, ScreeningReport]) -> None:
    transposed, expanded = report_of["transposed_non_contiguous"].facts, report_of["expanded_input"].facts
    assert transposed is not None
    assert expanded is not None
    assert [spec.stride for spec in transposed.inputs] == [[1, 96], [128, 1]]
    assert expanded.inputs[1].stride == [0, 1]
