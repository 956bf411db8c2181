import pytest
import torch

from services.sandbox.judge.layout import tensor_spec
from services.sandbox.judge.state import StateMismatch, match_state, owned_state, plain_attributes, randomise
from services.sandbox.replies import Loaded, StateEntry, StateKind, Tree


def _loaded(**tensors: tuple[StateKind, torch.Tensor]) -> Loaded:
    state = [StateEntry(name=name, kind=kind, spec=tensor_spec(tensor)) for name, (kind, tensor) in tensors.items()]
    return Loaded(init=Tree(structure={"tuple": []}), state=state, forward_parameters=["x"])


WEIGHT = (StateKind.PARAMETER, torch.randn(4, 3))
BIAS = (StateKind.PARAMETER, torch.zeros(4))
COUNT = (StateKind.BUFFER, torch.tensor(0))


def test_names_come_first() -> None:
    match = match_state(_loaded(weight=WEIGHT, bias=BIAS), _loaded(bias=BIAS, weight=WEIGHT))
    assert match.sources == {"bias": "bias", "weight": "weight"}
    assert match.note == ""


def test_a_candidate_may_leave_out_a_buffer_and_the_report_says_so() -> None:
    match = match_state(_loaded(weight=WEIGHT, count=COUNT), _loaded(weight=WEIGHT))
    assert match.sources == {"weight": "weight"}
    assert "count" in match.note


def test_order_and_shape_come_second() -> None:
    match = match_state(_loaded(weight=WEIGHT, bias=BIAS), _loaded(w=WEIGHT, b=BIAS))
    assert match.sources == {"w": "weight", "b": "bias"}
    assert "by order" in match.note


@pytest.mark.parametrize(
    "candidate",
    [
        _loaded(),
        _loaded(weight=WEIGHT),
        _loaded(b=BIAS, w=WEIGHT),
        _loaded(weight=WEIGHT, bias=BIAS, more=BIAS),
        _loaded(weight=(StateKind.PARAMETER, torch.randn(4, 3).bfloat16()), bias=BIAS),
    ],
)
def test_anything_else_is_a_mismatch_with_both_lists(candidate: Loaded) -> None:
    with pytest.raises(StateMismatch) as raised:
        match_state(_loaded(weight=WEIGHT, bias=BIAS), candidate)
    assert "parameter weight: float32[4, 3]" in raised.value.report.detail
    assert "ModelNew has:" in raised.value.report.detail


def test_neutral_parameters_stop_being_neutral_and_stay_well_conditioned() -> None:
    state = {
        "gamma": torch.zeros(64),
        "weight": torch.ones(64),
        "running_var": torch.ones(64),
        "scalar": torch.ones(()),
    }
    changed = randomise(state, frozenset({"gamma", "weight"}), seed=1)
    assert changed["gamma"].abs().max() > 0.1
    assert (changed["weight"] - 1).abs().max() > 0.1
    assert changed["running_var"].min() >= 0.5
    assert changed["scalar"] != 1


def test_weights_keep_their_scale_and_layout() -> None:
    weight = torch.randn(32, 64).t()
    changed = randomise({"weight": weight}, frozenset({"weight"}), seed=1)["weight"]
    assert changed.stride() == weight.stride()
    assert 0.7 < float(changed.std() / weight.std()) < 1.3
    assert not torch.equal(changed, weight)


def test_computed_integer_and_infinite_buffers_are_kept() -> None:
    buffers = {"table": torch.arange(8.0), "count": torch.tensor(3), "mask": torch.tensor([0.0, float("-inf")])}
    assert randomise(buffers, frozenset(), seed=1) == {}


def test_plain_attributes_are_named_and_not_state() -> None:
    loaded = _loaded(weight=WEIGHT, h0=(StateKind.ATTRIBUTE, torch.zeros(2)))
    assert plain_attributes(loaded) == ["h0"]
    assert list(owned_state(loaded)) == ["weight"]
