"""Everything that screening can say of an op: code, severity, title and mend in one place."""

from typing import NamedTuple

from services.contracts import Finding, Severity


class _Entry(NamedTuple):
    severity: Severity
    title: str
    mend: str


_B, _W, _I = Severity.BLOCKER, Severity.WARNING, Severity.INFO
_MEND_LINE = "Mend this line; the op must run on the CPU."
_MEND_LOOP = "Look for a loop that does not end, or use smaller inputs."

CATALOGUE: dict[str, _Entry] = {
    # The source.
    "source_too_large": _Entry(_B, "The source is larger than 1 MB", "Upload the op alone."),
    "nul_bytes": _Entry(_B, "The source holds NUL bytes", "Save the file as UTF-8 text."),
    "syntax_error": _Entry(_B, "The source is not Python", "Mend this line."),
    "missing_model": _Entry(
        _B, "The source defines no Model", "Define a class Model(nn.Module) with the op in forward."
    ),
    "missing_get_inputs": _Entry(
        _B, "The source defines no get_inputs", "Define get_inputs(), which returns the list of forward's arguments."
    ),
    "missing_get_init_inputs": _Entry(
        _B,
        "The source defines no get_init_inputs",
        "Define get_init_inputs(), which returns the list of Model's arguments ([] if it takes none).",
    ),
    "cuda_device": _Entry(
        _B,
        "The source asks for a CUDA device, and here is no GPU",
        "Write device=x.device with x one of forward's inputs, and make inputs on the CPU: the judge moves them.",
    ),
    # What it raises.
    "load_failed": _Entry(_B, "The source or Model.__init__ failed", _MEND_LINE),
    "get_inputs_failed": _Entry(_B, "get_inputs() failed", _MEND_LINE),
    "forward_failed": _Entry(_B, "forward failed on the op's own inputs", _MEND_LINE),
    "load_timeout": _Entry(_B, "Loading did not end within the limit", _MEND_LOOP),
    "get_inputs_timeout": _Entry(_B, "get_inputs() did not end within the limit", _MEND_LOOP),
    "forward_timeout": _Entry(_B, "forward did not end within the limit", _MEND_LOOP),
    "out_of_memory": _Entry(
        _B, "Too large to judge without a GPU", "Use smaller inputs or parameters, or start a GPU worker."
    ),
    "fault_in_family": _Entry(_W, "forward fails on some values", "Candidates are not tested on this kind of values."),
    # Its inputs.
    "non_tensor_inputs": _Entry(_I, "Some inputs are not tensors", "They are passed on as they are."),
    "no_tensor_inputs": _Entry(_B, "No input is a tensor", "Return at least one tensor from get_inputs()."),
    "empty_inputs": _Entry(_B, "Every input is empty", "Give every dimension in get_inputs() a size of at least 1."),
    "some_empty_inputs": _Entry(_W, "Some inputs are empty", "Nothing about them is tested: give them elements."),
    "needs_gpu_worker": _Entry(
        _B, "Too large to judge without a GPU", "Start a GPU worker, or upload the op with smaller inputs."
    ),
    "slow_in_interpreter": _Entry(
        _W, "Large inputs: each judgement here takes a while", "Smaller inputs of the same kind are judged faster."
    ),
    "expanded_input": _Entry(_I, "Some inputs are expanded (stride 0)", "They stay expanded in every test."),
    "non_contiguous_inputs": _Entry(_I, "Some inputs are not contiguous", "Their strides are kept in every test."),
    "requires_grad": _Entry(_I, "Some inputs require gradients", "Only forward is judged, and only its values."),
    "complex_input": _Entry(
        _B, "Complex inputs are not supported yet", "Pass two real tensors instead (torch.view_as_real)."
    ),
    "inputs_never_vary": _Entry(
        _B, "The inputs are the same in every call", "Make them random in get_inputs(), e.g. with torch.randint."
    ),
    "all_positive_inputs": _Entry(
        _I,
        "Inputs without a negative value",
        "Nothing to change: candidates are also tested on negated and shifted values.",
    ),
    "unsupported_tensor": _Entry(
        _B,
        "A tensor of this kind is not supported yet",
        "Use dense tensors of a plain dtype; an 8-bit float can be passed as uint8 and viewed as one in forward.",
    ),
    # Its state.
    "plain_tensor_attribute": _Entry(
        _W, "A tensor is neither parameter nor buffer", "Register it in __init__ with self.register_buffer(name, ...)."
    ),
    "stateful_forward": _Entry(
        _B, "forward changes its own state", "Pass the state in as an input and return the new one."
    ),
    # Its outputs.
    "mutates_input": _Entry(
        _B,
        "forward changes its own input",
        "Work on a copy: x = x.clone() first, or operators without a trailing underscore.",
    ),
    "no_tensor_output": _Entry(
        _B, "forward returns no tensor", "Return a tensor, or a tuple, list or dict with tensors."
    ),
    "empty_output": _Entry(
        _B, "forward returns nothing but empty tensors", "Choose inputs for which the output has elements."
    ),
    "complex_output": _Entry(
        _B, "Complex outputs are not supported yet", "Return torch.view_as_real(...) of the result."
    ),
    "output_too_large": _Entry(_B, "The output is too large", "Use smaller inputs."),
    "nan_output": _Entry(_B, "The op gives NaN on its own inputs", "Give inputs for which the op is defined."),
    "infinite_output": _Entry(
        _W, "The output holds infinities", "If that is not meant, give inputs of a smaller range."
    ),
    "random_output": _Entry(
        _B,
        "The output is random even in eval mode",
        "Pass the random numbers in as an input, made by get_inputs().",
    ),
    "unspecified_values": _Entry(
        _B,
        "The output holds memory that nothing has written",
        "Write every element, or allocate with torch.zeros.",
    ),
    "shapes_change": _Entry(
        _B, "Two calls of get_inputs() give other shapes", "Fix the sizes in get_inputs(); only values may be random."
    ),
    "output_ignores_input": _Entry(
        _B, "The output does not depend on the inputs", "Make the output depend on the inputs."
    ),
    # Its mode and size.
    "random_in_train_mode": _Entry(
        _W, "Random in train mode", "It is judged in eval mode, where dropout does nothing."
    ),
    "differs_in_train_mode": _Entry(_I, "Another answer in train mode", "It is judged in eval mode."),
    "launch_bound": _Entry(
        _I,
        "Small op: launching costs more than computing",
        "Fusing calls helps here; for a faster kernel as such, upload larger inputs.",
    ),
    # Wrong answers that pass.
    "degenerate_zeros": _Entry(
        _B,
        "An answer of zeros passes every test: this op's output is zero whatever goes in",
        "Look for a value subtracted from itself, or a reduction over a dimension of size 1.",
    ),
    "degenerate_constant": _Entry(
        _B,
        "One constant passes every test: this op's output is the same whatever goes in",
        "Make the output depend on the inputs, for example by returning what precedes the last reduction.",
    ),
    "degenerate_identity": _Entry(
        _B,
        "Handing back an input passes every test: this op does nothing to it",
        "Give inputs, arguments or a mode in which the op changes its input.",
    ),
    "degenerate_half_the_work": _Entry(
        _W,
        "Reading only the first half of the rows passes every test",
        "If all rows should count, give inputs whose halves differ.",
    ),
    "degenerate_low_precision": _Entry(
        _W,
        "The answer rounded to bfloat16 passes every test, so low-precision arithmetic cannot be seen here",
        "Nothing to change if every output is exactly representable; otherwise choose the strict policy.",
    ),
    "infrastructure": _Entry(
        _W, "The sandbox itself failed, not the op", "Nothing to change: the op is screened again."
    ),
}


def finding(code: str, detail: str = "", line: int | None = None, *, mend: str = "") -> Finding:
    """A finding of the catalogue; `mend` is added to the catalogue's own."""
    entry = CATALOGUE[code]
    return Finding(
        code=code,
        severity=entry.severity,
        title=entry.title,
        detail=detail,
        mend=f"{entry.mend} {mend}".strip(),
        line=line,
    )
