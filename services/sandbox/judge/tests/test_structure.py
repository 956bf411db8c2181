import pytest
from pydantic import JsonValue

from services.contracts import TensorSpec, Verdict
from services.sandbox.judge.structure import layout_problem
from services.sandbox.replies import Leaf, Tree


def _tree(structure: JsonValue, *leaves: tuple[list[int], str]) -> Tree:
    return Tree(
        structure=structure,
        leaves=[Leaf(spec=TensorSpec(shape=shape, stride=[1] * len(shape), dtype=dtype)) for shape, dtype in leaves],
    )


F4, F5, H4 = ([4], "float32"), ([5], "float32"), ([4], "float16")
NESTED: JsonValue = {"dict": {"values": {"tensor": 0}, "more": {"tuple": [{"tensor": 1}, {"value": 3}]}}}


def test_equal_layouts_have_no_problem() -> None:
    assert layout_problem(_tree(NESTED, F4, F5), _tree(NESTED, F4, F5)) is None


@pytest.mark.parametrize(
    ("got", "verdict", "said"),
    [
        (_tree({"tensor": 0}, F4), Verdict.WRONG_STRUCTURE, "a tensor, expected a dict"),
        (_tree({"dict": {"values": {"tensor": 0}}}, F4), Verdict.WRONG_STRUCTURE, "keys"),
        (
            _tree({"dict": {"values": {"tensor": 0}, "more": {"list": [{"tensor": 1}, {"value": 3}]}}}, F4, F5),
            Verdict.WRONG_STRUCTURE,
            "output['more'] is a list, expected a tuple",
        ),
        (
            _tree({"dict": {"values": {"tensor": 0}, "more": {"tuple": [{"tensor": 1}, {"value": 4}]}}}, F4, F5),
            Verdict.WRONG_STRUCTURE,
            "output['more'][1] is 4, expected 3",
        ),
        (
            _tree({"dict": {"values": {"tensor": 0}, "more": {"tuple": [{"tensor": 1}]}}}, F4, F5),
            Verdict.WRONG_STRUCTURE,
            "1 items, expected 2",
        ),
        (_tree(NESTED, F4, F4), Verdict.WRONG_SHAPE, "output['more'][0] has shape [4], expected [5]"),
        (_tree(NESTED, H4, F5), Verdict.WRONG_DTYPE, "output['values'] is float16, expected float32"),
    ],
)
def test_the_first_difference_is_named(got: Tree, verdict: Verdict, said: str) -> None:
    problem = layout_problem(_tree(NESTED, F4, F5), got)
    assert problem is not None
    assert problem[0] is verdict
    assert said in problem[1]
