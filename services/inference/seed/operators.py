"""How ATen operators are called in a kernel's name and docstring, and in the title."""

import re

VIEWS = {
    "t", "view", "_unsafe_view", "reshape", "expand", "split", "chunk", "unsqueeze", "squeeze", "transpose", "permute",
    "slice", "select", "detach", "clone", "alias", "unbind", "split_with_sizes", "lift_fresh", "_to_copy", "empty",
    "as_strided", "unsafe_split",
}  # fmt: skip
"""They compute nothing."""
WITH_BIAS = {"addmm", "baddbmm", "convolution"}
"""Of these a library does the product, and a kernel may add the bias."""
STEPS = {
    "softmax_statistics": "Maximum of each row and its sum of exp(x - maximum), of which a softmax is made.",
    "copy": "Copies into another layout.",
}
"""What a kernel does that computes no call of the graph."""
EXTREMES = {"max", "amax", "min", "amin", "aminmax", "argmax", "argmin", "max_pool2d_with_indices", "topk", "cummax"}
"""They give NaN where one operand is NaN."""


def call_text(operator: str) -> str:
    """ "aten.gelu", or "the bias of aten.addmm" for "addmm.bias"."""
    call, _, part = operator.partition(".")
    return f"the {part} of aten.{call}" if part else f"aten.{call}"


def plain_word(operator: str) -> str:
    """The operator without the parts of its name that mean nothing to a reader."""
    if operator.endswith(".bias"):
        return "bias"
    return operator.strip("_").removeprefix("native_").removesuffix("_forward").removeprefix("linalg_")


def words_of(name: str) -> list[str]:
    """Words of Inductor's own kernel name, for one that computes no call of the graph."""
    stem = re.sub(r"^triton_[a-z]+_fused_?|_?\d+$", "", name)
    return ["softmax_statistics"] if "prepare_softmax" in stem else [stem.strip("_") or "copy"]
