"""The closed set of verdicts, and who is at fault for each."""

from enum import StrEnum


class Fault(StrEnum):
    """Whose fault an outcome is."""

    NOBODY = "nobody"
    CANDIDATE = "candidate"
    OP = "op"
    OURS = "ours"


class Verdict(StrEnum):
    """What the sandbox says about one Candidate on one kind of GPU."""

    PASSED = "passed"
    COMPILE_ERROR = "compile_error"
    LOAD_ERROR = "load_error"
    RUNTIME_ERROR = "runtime_error"
    ILLEGAL_MEMORY = "illegal_memory"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    WRONG_SHAPE = "wrong_shape"
    WRONG_DTYPE = "wrong_dtype"
    WRONG_STRUCTURE = "wrong_structure"
    WRONG_VALUES = "wrong_values"
    NON_FINITE = "non_finite"
    PRECISION_DOWNGRADE = "precision_downgrade"
    NONDETERMINISTIC = "nondeterministic"
    INPUT_MUTATED = "input_mutated"
    NO_GENERATED_KERNEL = "no_generated_kernel"
    DECOY_KERNEL = "decoy_kernel"
    TIMING_MISMATCH = "timing_mismatch"
    IMPOSSIBLE = "impossible"
    STATE_MISMATCH = "state_mismatch"
    INFRASTRUCTURE = "infrastructure"
    INVALID_REFERENCE = "invalid_reference"

    @property
    def fault(self) -> Fault:
        """Who is to blame: only the candidate's fault is ever a reward of zero."""
        if self is Verdict.PASSED:
            return Fault.NOBODY
        if self is Verdict.INFRASTRUCTURE:
            return Fault.OURS
        if self is Verdict.INVALID_REFERENCE:
            return Fault.OP
        return Fault.CANDIDATE

    @property
    def label(self) -> str:
        """The verdict in plain words, as pages and feedback show it."""
        return self.value.replace("_", " ")


class Backend(StrEnum):
    """Where a candidate ran: the interpreter on host memory, or a real GPU."""

    HOST = "host"
    CUDA = "cuda"


class IsolationLevel(StrEnum):
    """How a candidate was shut in; stored with every Evaluation.

    full: own namespaces by bubblewrap, no network, read-only root.
    reduced: Landlock and resource limits only.
    none: nothing; only with SANDBOX_ALLOW_UNSAFE=1.
    """

    FULL = "full"
    REDUCED = "reduced"
    NONE = "none"
