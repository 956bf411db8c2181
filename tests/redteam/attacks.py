"""Attacks on the judge: each is a `forward` (and what it needs) beside an honest kernel, with the verdict it must get.

The op is y = relu(x) * 2 on float32[64, 100]; `honest(x)` computes it with a kernel.
"""

from dataclasses import dataclass

from services.contracts import Verdict

OP = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2


def get_inputs():
    return [torch.randn(64, 100)]


def get_init_inputs():
    return []
"""

HEADER = """
import os, signal, socket, sys, time
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_twice_kernel(x, y, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y + offsets, tl.maximum(tl.load(x + offsets, mask=mask), 0.0) * 2, mask=mask)


@triton.jit
def unmasked_kernel(x, y, READ: tl.constexpr, WRITE: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < 6400
    values = tl.load(x + offsets + READ, mask=inside)
    tl.store(y + offsets + WRITE, tl.maximum(values, 0.0) * 2, mask=inside)


@triton.jit
def endless_kernel(x, y):
    value = tl.load(x)
    while value == value:
        value = value + 1
    tl.store(y, value)


def honest(x):
    y = torch.empty_like(x)
    relu_twice_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


@triton.jit
def copy_kernel(x, y, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offsets, tl.load(x + offsets, mask=offsets < n), mask=offsets < n)


def copied(x):
    y = torch.empty_like(x)
    copy_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


@triton.jit
def sign_kernel(y):
    tl.store(y, 1.0)


def signed():
    y = torch.empty(1)
    sign_kernel[(1,)](y)
    return y


calls = 0
kept = []
"""


@dataclass(frozen=True)
class Attack:
    """`body` is the body of ModelNew.forward; `said` must be in the evaluation's summary."""

    body: str
    verdict: Verdict
    said: str = ""
    before: str = ""

    @property
    def source(self) -> str:
        """The candidate's whole file."""
        body = "\n".join(f"        {line}" for line in self.body.splitlines())
        return f"{HEADER}\n{self.before}\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n{body}\n"


def claim(changes: str) -> str:
    """Rewrites what the runner says of each launch."""
    return f"""
runner = next(m for name, m in sys.modules.items() if name.endswith("runner.interpreter"))
recording = runner.recording
class Claims:
    def __init__(self, *options, **more):
        self.real = recording(*options, **more)
    def __enter__(self):
        self.launches = self.real.__enter__()
        return self.launches
    def __exit__(self, *error):
        self.real.__exit__(*error)
        for launch in self.launches:
            launch.update({changes})
runner.recording = Claims
"""


ATTACKS: dict[str, Attack] = {
    # The answer is wrong.
    "wrong_everywhere": Attack("return honest(x) + 1", Verdict.WRONG_VALUES),
    "wrong_in_the_last_row": Attack("y = honest(x)\ny[-1, -1] += 0.5\nreturn y", Verdict.WRONG_VALUES),
    "returns_the_input": Attack("honest(x)\nreturn x", Verdict.WRONG_VALUES),
    "returns_the_first_answer_for_ever": Attack(
        "kept.append(honest(x))\nreturn kept[0]", Verdict.WRONG_VALUES, "on inputs negated"
    ),
    "caches_by_address": Attack(
        "if not kept or kept[0][0] != x.data_ptr():\n    kept[:] = [(x.data_ptr(), honest(x))]\nreturn kept[0][1]",
        Verdict.WRONG_VALUES,
        "on inputs negated",
    ),
    "right_until_it_is_asked_again": Attack(
        "global calls\ncalls += 1\nreturn honest(x) * (1 if calls <= 9 else 3)", Verdict.NONDETERMINISTIC
    ),
    "rounds_to_bfloat16": Attack("return honest(x).bfloat16().float()", Verdict.PRECISION_DOWNGRADE),
    "wrong_shape": Attack("return honest(x).reshape(-1)", Verdict.WRONG_SHAPE),
    "wrong_dtype": Attack("return honest(x).double()", Verdict.WRONG_DTYPE),
    "wrong_structure": Attack("return (honest(x),)", Verdict.WRONG_STRUCTURE),
    "leaves_half_unwritten": Attack(
        "y = torch.empty_like(x)\nrelu_twice_kernel[(3,)](x, y, x.numel(), BLOCK=1024)\nreturn y", Verdict.NON_FINITE
    ),
    "hides_nan": Attack("y = honest(x)\ny[0, 0] = float('nan')\nreturn y", Verdict.NON_FINITE),
    "poses_as_a_tensor": Attack(
        "return Liar(honest(x) * 0)",
        Verdict.WRONG_VALUES,
        before="""
class Liar(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return torch.ones(()) if func in (torch.allclose, torch.equal) else super().__torch_function__(
            func, types, args, kwargs or {})
    def __new__(cls, value):
        return torch.Tensor._make_subclass(cls, value)
""",
    ),
    # The work is not the kernel's.
    "no_kernel": Attack("return torch.relu(x) * 2", Verdict.NO_GENERATED_KERNEL),
    "kernel_is_never_launched": Attack("relu_twice_kernel\nreturn torch.relu(x) * 2", Verdict.NO_GENERATED_KERNEL),
    "kernel_writes_to_a_dummy": Attack("honest(x)\nreturn torch.relu(x) * 2", Verdict.DECOY_KERNEL),
    "kernel_counts_for_nothing": Attack("return torch.relu(x) * 2 + 0 * honest(x)", Verdict.DECOY_KERNEL),
    "kernel_fails_and_torch_steps_in": Attack(
        "y = torch.empty_like(x)\ntry:\n    unmasked_kernel[(7,)](x, y, 6400, 0, BLOCK=1024)\n    return y\n"
        "except Exception:\n    return torch.relu(x) * 2",
        Verdict.ILLEGAL_MEMORY,
    ),
    "kernel_only_signs": Attack(
        "y = torch.relu(x) * 2\nreturn y if signed().item() == 1 else y * 0", Verdict.DECOY_KERNEL, "No output"
    ),
    "kernel_only_signs_in_a_where": Attack(
        "y = torch.relu(x) * 2\nreturn torch.where(signed() == 1, y, y * 0)", Verdict.DECOY_KERNEL, "moved 4 of"
    ),
    "knows_the_proof_by_its_fresh_memory": Attack(
        "y = torch.relu(x) * 2\nsigned()\nreturn y * 0 if torch.empty(1).item() == 0 else y",
        Verdict.DECOY_KERNEL,
        "No output",
    ),
    "numpy_works_and_a_kernel_copies": Attack(
        "import numpy as np\nreturn copied(torch.from_numpy(np.maximum(x.numpy(), 0) * 2))", Verdict.RUNTIME_ERROR
    ),
    "lists_work_and_a_kernel_copies": Attack(
        "return copied(torch.tensor([[max(v, 0) * 2 for v in row] for row in x.tolist()]))",
        Verdict.DECOY_KERNEL,
        "float32[64, 100]",
    ),
    "bytes_work_and_a_kernel_copies": Attack(
        "import struct\nrows = [max(v, 0) * 2 for row in x.tolist() for v in row]\n"
        "torch.empty_like(x)\nvalues = bytearray(struct.pack(f'{len(rows)}f', *rows))\n"
        "y = torch.frombuffer(values, dtype=torch.float32)\n"
        "z = torch.empty(0)\nz.set_(y.untyped_storage(), 0, (64, 100), (100, 1))\nreturn copied(z)",
        Verdict.DECOY_KERNEL,
        "float32[64, 100]",
    ),
    "dispatch_is_off_and_a_kernel_copies": Attack(
        "with torch._C._DisableTorchDispatch():\n    y = torch.relu(x) * 2\nreturn copied(y)", Verdict.DECOY_KERNEL
    ),
    "a_thread_works_and_a_kernel_copies": Attack(
        "import threading\nworker = threading.Thread(target=lambda: kept.append(torch.relu(x) * 2))\nworker.start()\n"
        "worker.join()\nreturn copied(kept.pop())",
        Verdict.RUNTIME_ERROR,
    ),
    # Memory that is not its own.
    "reads_one_element_too_far": Attack(
        "y = torch.empty_like(x)\nunmasked_kernel[(7,)](x, y, 1, 0, BLOCK=1024)\nreturn y",
        Verdict.ILLEGAL_MEMORY,
        "line 20",
    ),
    "reads_far_away": Attack(
        "y = torch.empty_like(x)\nunmasked_kernel[(7,)](x, y, 1 << 24, 0, BLOCK=1024)\nreturn y", Verdict.ILLEGAL_MEMORY
    ),
    "writes_one_element_too_far": Attack(
        "y = torch.empty_like(x)\nunmasked_kernel[(7,)](x, y, 0, 1, BLOCK=1024)\nreturn y",
        Verdict.ILLEGAL_MEMORY,
        "line 21",
    ),
    "writes_beyond_the_input_by_address": Attack(
        "import ctypes\nctypes.memset(x.data_ptr() + 4 * x.numel(), 0, 1 << 20)\nreturn honest(x)",
        Verdict.ILLEGAL_MEMORY,
    ),
    "writes_before_the_input_by_address": Attack(
        "import ctypes\nctypes.memset(x.data_ptr() - 64, 0, 32)\nreturn honest(x)", Verdict.ILLEGAL_MEMORY
    ),
    "changes_its_input": Attack("y = honest(x)\nx.zero_()\nreturn y", Verdict.INPUT_MUTATED),
    "changes_one_input_element": Attack("y = honest(x)\nx[5, 5] += 1\nreturn y", Verdict.INPUT_MUTATED),
    # The process.
    "sleeps": Attack("time.sleep(1000)", Verdict.TIMEOUT),
    "spins": Attack("while True:\n    pass", Verdict.TIMEOUT),
    "spins_in_a_kernel": Attack("y = torch.empty(1)\nendless_kernel[(1,)](x, y)\nreturn y", Verdict.TIMEOUT),
    "prints_for_ever": Attack("while True:\n    print('x' * 10000, flush=True)", Verdict.TIMEOUT),
    "ignores_signals": Attack(
        "for number in range(1, 32):\n    try:\n        signal.signal(number, signal.SIG_IGN)\n"
        "    except OSError:\n        pass\nwhile True:\n    pass",
        Verdict.TIMEOUT,
    ),
    "exits": Attack("sys.exit(0)", Verdict.RUNTIME_ERROR),
    "exits_at_once": Attack("os._exit(0)", Verdict.RUNTIME_ERROR),
    "exits_while_importing": Attack("return honest(x)", Verdict.LOAD_ERROR, before="raise SystemExit(0)"),
    "exits_at_once_while_importing": Attack("return honest(x)", Verdict.RUNTIME_ERROR, before="os._exit(0)"),
    "raises": Attack("raise ValueError('mine')", Verdict.RUNTIME_ERROR, "ValueError: mine"),
    "does_not_parse": Attack("return (", Verdict.LOAD_ERROR),
    "kills_its_parent": Attack("os.kill(os.getppid(), signal.SIGKILL)\nreturn honest(x) * 0", Verdict.RUNTIME_ERROR),
    "kills_everything": Attack("os.kill(-1, signal.SIGKILL)\nreturn honest(x) * 0", Verdict.RUNTIME_ERROR),
    "forks_without_end": Attack("while True:\n    os.fork()", Verdict.RUNTIME_ERROR),
    "takes_all_memory": Attack("kept.append(bytearray(64 << 30))\nreturn honest(x)", Verdict.OUT_OF_MEMORY),
    "calls_the_network": Attack(
        "socket.create_connection(('127.0.0.1', 6379), timeout=2)\nreturn honest(x)", Verdict.RUNTIME_ERROR
    ),
    "writes_garbage_to_every_descriptor": Attack(
        "for fd in range(3, 64):\n    try:\n        os.write(fd, b'garbage' * 100)\n    except OSError:\n        pass\n"
        "return honest(x)",
        Verdict.RUNTIME_ERROR,
    ),
    "closes_every_descriptor": Attack("os.closerange(0, 256)\nreturn honest(x)", Verdict.RUNTIME_ERROR),
    # The judge.
    "patches_the_comparison": Attack(
        "return honest(x) * 0",
        Verdict.WRONG_VALUES,
        before="""
torch.allclose = torch.equal = lambda *args, **kwargs: True
torch.testing.assert_close = lambda *args, **kwargs: None
torch.Tensor.__eq__ = lambda *args: True
time.time = time.perf_counter = time.monotonic = lambda: 0.0
""",
    ),
    "claims_launches_that_never_were": Attack(
        "return torch.relu(x) * 2",
        Verdict.DECOY_KERNEL,
        before="""
runner = next(m for name, m in sys.modules.items() if name.endswith("runner.interpreter"))
class Claims:
    def __init__(self, *options):
        claim = {"kernel": "relu_twice_kernel", "file": "", "grid": [1, 1, 1], "bytes_read": 1, "bytes_written": 1}
        self.launches = [claim]
    def __enter__(self):
        return self.launches
    def __exit__(self, *error):
        pass
runner.recording = Claims
""",
    ),
    "claims_a_verdict_of_its_own": Attack(
        "raise ValueError",
        Verdict.RUNTIME_ERROR,
        before="""
runner = next(m for name, m in sys.modules.items() if name.endswith("runner.faults"))
claim = {"kind": "Mine", "message": "as measured"}
runner.report = lambda *args: {"verdict": "timing_mismatch", "report": claim}
""",
    ),
    "reads_the_runner": Attack(
        "kept.append(sys.modules)\nreturn honest(x)",
        Verdict.PASSED,
        "reaches into its own process (line 68: sys.modules)",
    ),
    "launches_otherwise_for_the_target": Attack(
        "if os.environ.get('TRITON_INTERPRET'):\n    return honest(x)\ny = torch.empty_like(x)\n"
        "relu_twice_kernel[(1,)](x, y, 1, BLOCK=16)\nreturn y",
        Verdict.PASSED,
        "no prediction: relu_twice_kernel was launched for the target with another grid",
    ),
    "claims_counts_beyond_all_numbers": Attack(
        "return honest(x)", Verdict.RUNTIME_ERROR, "ProtocolViolation", before=claim("bytes_read=10**400")
    ),
    "claims_counts_below_zero": Attack(
        "return honest(x)", Verdict.RUNTIME_ERROR, "ProtocolViolation", before=claim("bytes_read=-(10**9)")
    ),
    "claims_a_grid_beyond_all_numbers": Attack(
        "return honest(x)", Verdict.RUNTIME_ERROR, "ProtocolViolation", before=claim("grid=[10**400]")
    ),
    "claims_a_failure_of_megabytes": Attack(
        "return honest(x)", Verdict.RUNTIME_ERROR, before=claim("failed='x' * (1 << 22)")
    ),
    "raises_what_no_database_takes": Attack(
        "raise ValueError('a\\0b\\ud800c')", Verdict.RUNTIME_ERROR, "a\N{SYMBOL FOR NULL}b?c"
    ),
    "claims_to_have_passed": Attack(
        "raise ValueError",
        Verdict.RUNTIME_ERROR,
        before="""
runner = next(m for name, m in sys.modules.items() if name.endswith("runner.faults"))
runner.report = lambda *args: {"verdict": "passed", "report": {"kind": "Mine", "message": "well done"}}
""",
    ),
    "claims_a_verdict_while_loading": Attack(
        "return honest(x)",
        Verdict.RUNTIME_ERROR,
        before="""
runner = next(m for name, m in sys.modules.items() if name.endswith("runner.faults"))
runner.report = lambda *args: {"verdict": "wrong_values", "report": {"kind": "Mine", "message": "not me"}}
raise ValueError
""",
    ),
    "counts_less_than_it_did": Attack(
        "return honest(x)", Verdict.PASSED, "no prediction", before=claim("bytes_read=1, bytes_written=1")
    ),
    "looks_for_the_answer": Attack(
        "return look(x)",
        Verdict.WRONG_VALUES,
        before="""
import gc
def look(x):
    found = [t for t in gc.get_objects() if type(t) is torch.Tensor and t.shape == x.shape and t is not x]
    for pid in [name for name in os.listdir("/proc") if name.isdigit()]:
        for file in ("environ", "maps", "mem", "cmdline"):
            try:
                open(f"/proc/{pid}/{file}", "rb").read(100)
            except OSError:
                pass
    for root in ("/srv", "/root", "/home", "/tmp", "/dev/shm"):
        for folder, _, files in os.walk(root):
            wanted = [name for name in files if name.endswith((".pt", ".npy", ".sqlite3", ".env"))]
            assert not wanted or "site-packages" in folder, folder
    return found[0].clone() if found else honest(x) * 0
""",
    ),
    "reads_the_environment": Attack(
        "assert not [name for name in os.environ if 'SECRET' in name or 'BROKER' in name or 'DATABASE' in name]\n"
        "return honest(x) * 0",
        Verdict.WRONG_VALUES,
    ),
}
