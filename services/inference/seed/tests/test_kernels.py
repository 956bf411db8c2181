"""Rewriting single kernels, in the form in which Inductor writes them."""

import ast

import pytest

from services.inference.seed.errors import NoSeedError
from services.inference.seed.kernels import PlainKernel, rewrite_kernel
from services.inference.seed.program import WrittenKernel

POINTWISE = """
    xnumel = 1000
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex
"""
REDUCTION = """
    xnumel = 64
    r0_numel = 3000
    rnumel = r0_numel
    RBLOCK: tl.constexpr = R0_BLOCK
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_base = tl.arange(0, R0_BLOCK)[None, :]
    rbase = r0_base
    x0 = xindex
"""


def rewritten(body: str, pointers: dict[str, str], blocks: str = "XBLOCK", sizes: str = "xnumel") -> PlainKernel:
    """The rewritten form of one kernel body."""
    parameters = ", ".join([*pointers, sizes, *(f"{block}: tl.constexpr" for block in blocks.split())])
    function = ast.parse(f"def kernel({parameters}):\n{body}").body[0]
    assert isinstance(function, ast.FunctionDef)
    options = ast.Call(ast.Name("triton_heuristics"), [], [])
    written = WrittenKernel("kernel", function, [], "pointwise", options, pointers, [], "Grid1D")
    names = {"in_ptr0": "x", "in_ptr1": "bias", "out_ptr0": "out"}
    return rewrite_kernel(written, names, [], exact_extremes=False)


def text(kernel: PlainKernel) -> str:
    """The kernel's body."""
    return "\n".join(line.strip() for line in kernel.lines)


def test_constants_become_literals_and_single_uses_move_into_place() -> None:
    kernel = rewritten(
        POINTWISE
        + """
    tmp0 = tl.load(in_ptr0 + (x0), xmask)
    tmp1 = tl.full([1], 2.0, tl.float32)
    tmp2 = tmp0 * tmp1
    tmp3 = libdevice.exp(tmp2)
    tl.store(out_ptr0 + (x0), tmp3, xmask)
""",
        {"in_ptr0": "fp32", "out_ptr0": "fp32"},
    )
    assert text(kernel).splitlines()[-3:] == [
        "x = tl.load(x_ptr + offsets, mask=mask)",
        "out = tl.exp(x * 2.0)",
        "tl.store(out_ptr + offsets, out, mask=mask)",
    ]
    assert kernel.constants == {"n_elements": 1000}
    assert kernel.parameters == [("in_ptr0", "x_ptr"), ("out_ptr0", "out_ptr")]


def test_a_full_mask_disappears_with_the_size_that_it_needed() -> None:
    kernel = rewritten(
        POINTWISE.replace("xindex < xnumel", "tl.full([XBLOCK], True, tl.int1)[:]")
        + """
    tmp0 = tl.load(in_ptr0 + (x0), xmask)
    tl.store(out_ptr0 + (x0), tmp0, None)
""",
        {"in_ptr0": "fp32", "out_ptr0": "fp32"},
    )
    assert "mask" not in text(kernel)
    assert kernel.constants == {}


def test_a_value_from_before_a_loop_step_is_kept_from_before_it() -> None:
    """The product uses the carried value as it was, though the only use comes after its change."""
    kernel = rewritten(
        REDUCTION
        + """
    tmp1 = tl.full([XBLOCK, 1], 1.0, tl.float32)
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        r0_mask = r0_index < r0_numel
        r0_1 = r0_index
        tmp0 = tl.load(in_ptr0 + (r0_1 + 3000*x0), r0_mask & xmask, other=0.0)
        tmp2 = tmp1 * tmp0
        tmp1 = tmp1 + tmp1
        tl.store(out_ptr0 + (r0_1 + 3000*x0), tmp2, r0_mask & xmask)
""",
        {"in_ptr0": "fp32", "out_ptr0": "fp32"},
        "XBLOCK R0_BLOCK",
        "xnumel, r0_numel",
    )
    lines = text(kernel).splitlines()
    product = next(i for i, line in enumerate(lines) if "partial * x" in line)
    change = next(i for i, line in enumerate(lines) if line.startswith("partial = partial + partial"))
    assert product < change


def test_a_cast_load_is_not_moved_over_a_store() -> None:
    kernel = rewritten(
        POINTWISE
        + """
    tmp0 = tl.load(in_ptr0 + (x0), xmask).to(tl.float32)
    tl.store(out_ptr0 + (x0), tmp0, xmask)
    tmp1 = tl.load(in_ptr0 + (x0), xmask).to(tl.float32)
    tmp2 = tmp0 + tmp1
    tl.store(out_ptr0 + (x0), tmp2, xmask)
""",
        {"in_ptr0": "bf16", "out_ptr0": "bf16"},
    )
    lines = text(kernel).splitlines()
    loads = [i for i, line in enumerate(lines) if "tl.load" in line]
    stores = [i for i, line in enumerate(lines) if "tl.store" in line]
    assert loads[0] < stores[0] < loads[1] < stores[1]


def test_a_reduction_names_its_rows_and_columns() -> None:
    kernel = rewritten(
        REDUCTION
        + """
    _tmp2 = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        r0_mask = r0_index < r0_numel
        r0_1 = r0_index
        tmp0 = tl.load(in_ptr0 + (r0_1 + 3000*x0), r0_mask & xmask, other=0.0)
        tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
        tmp3 = _tmp2 + tmp1
        _tmp2 = tl.where(r0_mask & xmask, tmp3, _tmp2)
    tmp2 = tl.sum(_tmp2, 1)[:, None]
    tl.store(out_ptr0 + (x0), tmp2, xmask)
""",
        {"in_ptr0": "fp32", "out_ptr0": "fp32"},
        "XBLOCK R0_BLOCK",
        "xnumel, r0_numel",
    )
    assert "x = tl.load(x_ptr + row * n_cols + col, mask=mask, other=0.0)" in text(kernel)
    assert "out = tl.sum(partial, axis=1)[:, None]" in text(kernel)
    assert kernel.constants == {"n_rows": 64, "n_cols": 3000}
    assert kernel.blocks == {"XBLOCK": "BLOCK_ROWS", "R0_BLOCK": "BLOCK_COLS"}


def test_a_64_bit_constant_keeps_arithmetic_in_64_bits() -> None:
    kernel = rewritten(
        POINTWISE
        + """
    tmp0 = tl.load(in_ptr0 + (x0), xmask)
    tmp1 = tl.full([1], 3, tl.int64)
    tmp2 = tmp0 * tmp1
    tl.store(out_ptr0 + (x0), tmp2, xmask)
""",
        {"in_ptr0": "i32", "out_ptr0": "i64"},
    )
    assert "x * tl.full([1], 3, tl.int64)" in text(kernel)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("tmp1 = triton_helpers.sort_with_index(tmp0, None, 1)", "sort_with_index"),
        ("tmp1 = tl.rand(tmp0, x0)", "tl.rand"),
        ("tmp1 = __import__('os')", "__import__"),
        ("import os", "import os"),
    ],
)
def test_what_has_no_plain_form_is_refused(statement: str, reason: str) -> None:
    body = f"{POINTWISE}\n    tmp0 = tl.load(in_ptr0 + (x0), xmask)\n    {statement}\n"
    with pytest.raises(NoSeedError, match=reason):
        rewritten(body, {"in_ptr0": "fp32"})


@pytest.mark.parametrize(
    ("value", "neutral", "reduced"),
    [
        ("tmp0", "0", "x"),
        ("tmp1", "0", "tl.where(col_mask, tl.exp(x), 0)"),
        ("tmp0", 'float("-inf")', 'tl.where(col_mask, x, float("-inf"))'),
    ],
)
def test_a_reduction_masks_only_what_its_row_needs(value: str, neutral: str, reduced: str) -> None:
    kernel = rewritten(
        REDUCTION
        + f"""
    r0_index = r0_base
    r0_mask = r0_index < r0_numel
    tmp0 = tl.load(in_ptr0 + (r0_index + 3000*x0), r0_mask & xmask, other=0.0)
    tmp1 = libdevice.exp(tmp0)
    tmp2 = tl.where(r0_mask & xmask, {value}, {neutral})
    tmp3 = tl.sum(tmp2, 1)[:, None]
    tl.store(out_ptr0 + (x0), tmp3, xmask)
""",
        {"in_ptr0": "fp32", "out_ptr0": "fp32"},
        blocks="XBLOCK R0_BLOCK",
        sizes="xnumel, r0_numel",
    )
    assert f"out = tl.sum({reduced}, axis=1)[:, None]" in text(kernel)
