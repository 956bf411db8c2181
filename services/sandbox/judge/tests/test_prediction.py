"""What counts are believed."""

import pytest

from services.sandbox.judge.prediction import kernel_launches, refuse_impossible_counts, refuse_other_launches
from services.sandbox.replies import AtenCall, KernelCompile, Launch, Tree

CALL = AtenCall(name="aten.relu.default", bytes_read=400, bytes_written=400)
OUTPUT = Tree.model_validate(
    {"structure": {"tensor": 0}, "leaves": [{"spec": {"shape": [100], "stride": [1], "dtype": "float32"}}]}
)


def _launch(kernel: str = "relu", **fields: object) -> Launch:
    return Launch.model_validate(
        {"kernel": kernel, "grid": [4, 1, 1], "bytes_read": 400, "bytes_written": 400, **fields}
    )


def _compiled(kernel: str = "relu", **fields: object) -> KernelCompile:
    counts = {"registers": 8, "spills": 0, "shared_bytes": 0, "num_warps": 4, "num_stages": 3}
    return KernelCompile.model_validate({"kernel": kernel, "launches": 1, "grid": [4, 1, 1], **counts, **fields})


def test_less_than_the_outputs_hold_is_not_believed() -> None:
    honest, forged = (kernel_launches([_launch(bytes_read=0, bytes_written=n)], []) for n in (400, 399))
    refuse_impossible_counts(honest, [CALL], OUTPUT)
    with pytest.raises(ValueError, match="399 bytes were counted"):
        refuse_impossible_counts(forged, [CALL], OUTPUT)


def test_the_same_launches_for_the_target_are_believed() -> None:
    refuse_other_launches([_launch(), _launch()], [_compiled(launches=1), _compiled(launches=1)])
    refuse_other_launches([_launch()], [_compiled(configurations=3, grid=[9, 1, 1])])


@pytest.mark.parametrize(
    "compiled",
    [[_compiled(launches=2)], [_compiled(), _compiled("other")], [_compiled(grid=[1, 1, 1])]],
)
def test_other_launches_for_the_target_are_not_believed(compiled: list[KernelCompile]) -> None:
    with pytest.raises(ValueError, match="for the target"):
        refuse_other_launches([_launch()], compiled)
