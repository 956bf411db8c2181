"""User code that misbehaves is ended as a whole, blamed rightly, and leaves nothing to the next."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.contracts import IsolationLevel, Verdict
from services.sandbox.isolation import Isolation, probe
from services.sandbox.runners import Role, RunnerFault, RunnerKind, Runners
from services.sandbox.settings import SandboxSettings
from services.sandbox.tests.subjects import candidate, run


def answer(runners: Runners, body: str) -> object:
    """What a forward with this body returns, as a tree node."""
    with candidate(runners, body) as runner:
        return run(runners, runner)[0].outputs.structure


def fault(runners: Runners, body: str, *, wall_s: float = 20.0, role: Role = Role.CANDIDATE) -> RunnerFault:
    """What becomes of a forward with this body; afterwards the next candidate must run."""
    with candidate(runners, body, wall_s=wall_s, role=role) as runner, pytest.raises(RunnerFault) as caught:
        run(runners, runner)
    assert answer(runners, "return 1") == {"value": 1}
    return caught.value


def slot_processes() -> list[int]:
    """This process's descendants that run as a slot's user: candidates and what they started."""
    first = SandboxSettings().first_uid
    return [pid for pid in descendants(os.getpid()) if first <= Path(f"/proc/{pid}").stat().st_uid < first + 1000]


@pytest.mark.parametrize(
    ("body", "verdict", "kind", "line"),
    [
        ("os._exit(0)", Verdict.RUNTIME_ERROR, "ProcessExit", None),
        ("os.kill(os.getpid(), 9)", Verdict.RUNTIME_ERROR, "SIGKILL", None),
        ("import ctypes\nctypes.string_at(8)", Verdict.ILLEGAL_MEMORY, "SIGSEGV", 6),
        ("os.abort()", Verdict.RUNTIME_ERROR, "SIGABRT", 5),
        ("while True: pass", Verdict.TIMEOUT, "Timeout", 5),
        ("time.sleep(99)", Verdict.TIMEOUT, "Timeout", 5),
        ("torch.empty(8 << 30, dtype=torch.uint8)", Verdict.OUT_OF_MEMORY, "RuntimeError", 5),
        ("bytearray(8 << 30)", Verdict.OUT_OF_MEMORY, "MemoryError", 5),
        ("raise SystemExit(0)", Verdict.RUNTIME_ERROR, "SystemExit", 5),
        ("raise KeyboardInterrupt", Verdict.RUNTIME_ERROR, "KeyboardInterrupt", 5),
        ("def f(): return f()\nf()", Verdict.RUNTIME_ERROR, "RecursionError", 5),
    ],
)
def test_each_end_has_its_verdict_and_line(
    runners: Runners, body: str, verdict: Verdict, kind: str, line: int | None
) -> None:
    caught = fault(runners, body, wall_s=3.0)
    assert (caught.verdict, caught.report.kind, caught.report.line) == (verdict, kind, line)


def test_memory_of_the_whole_tree_counts() -> None:
    body = """
for _ in range(4):
    if os.fork() == 0:
        held = b"x" * (1 << 29)
        time.sleep(60)
time.sleep(60)
"""
    with Runners(SandboxSettings(memory_bytes=3 << 29)) as runners:
        caught = fault(runners, body, wall_s=60.0, role=Role.REFERENCE)
    assert (caught.verdict, caught.report.kind) == (Verdict.OUT_OF_MEMORY, "MemoryLimit")


@pytest.mark.parametrize("body", ["os.fork()", "import threading\nthreading.Thread(target=print).start()"])
def test_nothing_can_work_beside_a_candidate(runners: Runners, body: str) -> None:
    isolation = probe(SandboxSettings())
    if not isolation.drops_root and not (isolation.user_namespace and os.geteuid()):
        pytest.skip("the limit on processes does not bind here")
    caught = fault(runners, body)
    assert caught.verdict is Verdict.RUNTIME_ERROR
    assert caught.report.kind in ("BlockingIOError", "RuntimeError")


def test_a_fork_bomb_hits_the_limit_and_dies_as_a_whole(runners: Runners) -> None:
    body = """
count = 0
try:
    while True:
        if os.fork() == 0:
            os.setsid()
            time.sleep(60)
        count += 1
except OSError:
    return count
"""
    with candidate(runners, body, role=Role.REFERENCE) as runner:
        structure = run(runners, runner)[0].outputs.structure
        assert isinstance(structure, dict)
        assert 30 < structure["value"] < 64  # type: ignore[operator]
    if probe(SandboxSettings()).drops_root:
        assert slot_processes() == []
    assert answer(runners, "return 1") == {"value": 1}


def test_a_fork_bomb_that_never_stops_times_out(runners: Runners) -> None:
    caught = fault(runners, "while True:\n    try:\n        os.fork()\n    except OSError:\n        pass", wall_s=3.0)
    assert caught.verdict is Verdict.TIMEOUT


def test_endless_print_neither_blocks_nor_fills(runners: Runners) -> None:
    with candidate(runners, "for i in range(200000): print('y' * 100)\nreturn 1") as runner:
        assert run(runners, runner)[0].outputs.structure == {"value": 1}
        assert len(runner.printed) == SandboxSettings().output_bytes
    caught = fault(runners, "while True: print('y' * 1000)", wall_s=2.0)
    assert caught.verdict is Verdict.TIMEOUT


def test_closed_streams_do_no_harm(runners: Runners) -> None:
    start, cpu = time.monotonic(), time.process_time()
    assert answer(runners, "os.close(1); os.close(2); time.sleep(1.0)\nreturn 1") == {"value": 1}
    assert time.process_time() - cpu < 0.5 * (time.monotonic() - start)


@pytest.mark.parametrize(
    "body",
    [
        "for fd in range(3, 64):\n    try: os.write(fd, b'garbage' * 100)\n    except OSError: pass\nreturn 1",
        "import struct\nfor fd in range(3, 64):\n    try: os.write(fd, struct.pack('>I', 2) + b'[]')\n"
        "    except OSError: pass\nreturn 1",
        'import struct\nm = b\'{"id":1,"ok":{}}\'\nfor fd in range(3, 64):\n'
        "    try: os.write(fd, struct.pack('>I', len(m)) + m)\n    except OSError: pass\ntime.sleep(2)\nreturn 1",
        "import struct\nfor fd in range(3, 64):\n    try: os.write(fd, struct.pack('>I', 1 << 31))\n"
        "    except OSError: pass\nreturn 1",
    ],
)
def test_garbage_on_the_socket_is_the_candidates_fault(runners: Runners, body: str) -> None:
    caught = fault(runners, body, wall_s=5.0)
    assert (caught.verdict, caught.report.kind) == (Verdict.RUNTIME_ERROR, "ProtocolViolation")


@pytest.mark.parametrize(
    "spec",
    [
        {"shape": [-1], "stride": [1], "dtype": "float32"},
        {"shape": [1 << 50], "stride": [1], "dtype": "float32"},
        {"shape": [2], "stride": [], "dtype": "float32"},
        {"shape": [2], "stride": [1], "dtype": "load"},
        {"shape": "many", "stride": [1], "dtype": "float32"},
    ],
)
def test_an_output_that_no_tensor_can_be_is_refused(runners: Runners, spec: dict[str, object]) -> None:
    body = f"import runner.trees\nrunner.trees.spec = lambda tensor: {spec}\nreturn x"
    assert fault(runners, body).report.kind == "ProtocolViolation"


def test_a_worker_that_is_killed_leaves_no_process() -> None:
    program = """
import os, sys
from services.sandbox.runners import Role, RunnerKind, Runners
runners = Runners()
runner = runners.spawn(RunnerKind.INTERPRET, Role.REFERENCE)
print(os.getpid(), flush=True)
runner.load("import time\\nimport os\\nif os.fork() == 0: os.setsid()\\ntime.sleep(300)", "ModelNew")
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]
    ) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        time.sleep(0.5)
        below = descendants(worker.pid)
        assert len(below) >= 3
        worker.kill()
    deadline = time.monotonic() + 5
    while (left := [pid for pid in below if alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


def descendants(ancestor: int) -> list[int]:
    found = [ancestor]
    for pid in found:
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            found += map(int, task.read_text().split())
    return found[1:]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_process_that_hangs_up_is_ended(runners: Runners) -> None:
    caught = fault(runners, "os.closerange(3, 256)\ntime.sleep(60)", wall_s=10.0)
    assert (caught.verdict, caught.report.kind) == (Verdict.RUNTIME_ERROR, "ConnectionClosed")


def test_a_claim_to_be_our_fault_is_not_believed(runners: Runners) -> None:
    body = """
import runner.faults
runner.faults.report = lambda *a: {"verdict": "infrastructure", "report": {"kind": "x", "message": "y"}}
raise ValueError
"""
    assert fault(runners, body).report.kind == "ProtocolViolation"


@pytest.fixture(scope="module")
def full(runners: Runners) -> Runners:
    """Only where namespaces work."""
    if runners.isolation.level is not IsolationLevel.FULL:
        pytest.skip(runners.isolation.note)
    return runners


def test_no_network(full: Runners) -> None:
    body = """
try:
    socket.create_connection(("127.0.0.1", 80), timeout=2)
except OSError as error:
    return type(error).__name__, open("/proc/net/dev").read().count(":")
"""
    assert answer(full, body) == {"tuple": [{"value": "PermissionError"}, {"value": 1}]}


def test_only_what_python_needs_is_seen_and_nothing_can_be_written(full: Runners) -> None:
    body = """
def writable(path):
    try:
        open(os.path.join(path, "x"), "w").close()
    except OSError:
        return False
    return True
folders = ["/", "/usr", "/opt", "/opt/sandbox", "/opt/sandbox/runner", "/dev", sys.prefix, "/etc", "/proc"]
seen = [os.path.exists(path) for path in (repository, "/root/.ssh", "/etc/passwd", "/home")]
return [path for path in folders if writable(path)], any(seen)
"""
    repository = str(Path(__file__).resolve().parents[3] / "services")
    seen = answer(full, body.replace("repository", repr(repository)))
    assert seen == {"tuple": [{"list": []}, {"value": False}]}


def test_the_workers_environment_is_not_seen(full: Runners, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPSMITH_SECRET", "do not tell")
    body = """
seen = list(os.environ)
for pid in (1, os.getpid()):
    try:
        seen.append(open(f"/proc/{pid}/environ").read())
    except OSError:
        seen.append("refused")
return "do not tell" in str(seen), sorted(p for p in os.listdir("/proc") if p.isdigit()) == ["1", str(os.getpid())]
"""
    assert answer(full, body) == {"tuple": [{"value": False}, {"value": True}]}


def test_pid_1_can_neither_be_signalled_nor_traced(full: Runners) -> None:
    body = """
import ctypes, signal
libc = ctypes.CDLL(None, use_errno=True)
for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGINT, signal.SIGCHLD, signal.SIGTERM):
    try:
        os.kill(1, number)
    except OSError:
        pass
attached = libc.ptrace(16, 1, 0, 0)
try:
    open("/proc/1/mem", "rb")
    memory = True
except OSError:
    memory = False
return attached, memory
"""
    assert answer(full, body) == {"tuple": [{"value": -1}, {"value": False}]}
    assert answer(full, "return 1") == {"value": 1}


def test_the_kernel_gives_no_place_to_leave_things(full: Runners) -> None:
    body = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
made = [libc.shmget(7, 4096, 0o1666), libc.semget(7, 1, 0o1666), libc.msgget(7, 0o1666)]
made += [libc.syscall(248, b"user", b"k", b"v", 1, -3), libc.memfd_create(b"x", 0), libc.unshare(0x10000000)]
return made
"""
    assert answer(full, body) == {"list": [{"value": -1}] * 6}


def test_the_next_candidate_sees_no_file_of_the_last(full: Runners) -> None:
    leave = """
for folder in (os.environ["TMPDIR"], "/dev/shm"):
    open(f"{folder}/left", "w").write("x")
    os.makedirs(f"{folder}/a/b")
    open(f"{folder}/a/b/c", "w").close()
    os.symlink("/usr", f"{folder}/link")
    os.chmod(f"{folder}/a/b", 0)
    os.chmod(f"{folder}/a", 0)
return 1
"""
    assert answer(full, leave) == {"value": 1}
    seen = answer(full, "return os.listdir(os.environ['TMPDIR']), os.listdir('/dev/shm'), os.path.exists('/usr/bin')")
    assert seen == {"tuple": [{"list": [{"value": "candidate.py"}]}, {"list": []}, {"value": True}]}


def test_a_folder_that_cannot_be_emptied_costs_a_new_namespace(full: Runners) -> None:
    body = """
for _ in range(3000):
    os.mkdir("d")
    os.chdir("d")
return 1
"""
    assert answer(full, body) == {"value": 1}
    assert answer(full, "return os.listdir(os.environ['TMPDIR'])") == {"list": [{"value": "candidate.py"}]}


def test_files_and_scratch_are_bounded(full: Runners) -> None:
    body = """
sizes = []
for path in (os.environ["TMPDIR"] + "/big", "/dev/shm/big"):
    try:
        with open(path, "wb") as file:
            for _ in range(200):
                file.write(bytes(1 << 20))
                file.flush()
    except OSError:
        pass
    sizes.append(os.path.getsize(path) >> 20)
return sizes
"""
    assert answer(full, body) in [{"list": [{"value": size}, {"value": 32}]} for size in (31, 32)]


def test_a_worker_without_root_gets_full_isolation_by_a_user_namespace() -> None:
    settings = SandboxSettings()
    found = probe(settings)
    if found.level is not IsolationLevel.FULL:
        pytest.skip(found.note)
    rootless = Isolation(found.level, found.note, found.bwrap, user_namespace=True)
    with Runners(settings) as runners:
        runners.isolation = rootless
        assert answer(runners, "return 1") == {"value": 1}
        answer(runners, "for number in (9, 2, 15, 19): os.kill(1, number)")
        assert answer(runners, "import ctypes; return ctypes.CDLL(None).ptrace(16, 1, 0, 0)") == {"value": -1}
        assert fault(runners, "while True: pass", wall_s=2.0).verdict is Verdict.TIMEOUT


@pytest.fixture(params=["reduced", "none"])
def lesser(request: pytest.FixtureRequest) -> Iterator[Runners]:
    """Runners at a lower level than full."""
    with Runners(SandboxSettings(isolation=request.param, allow_unsafe=True)) as runners:
        if runners.isolation.level != request.param:
            pytest.skip(runners.isolation.note)
        yield runners


def test_lower_levels_run_and_end_candidates_as_a_whole(lesser: Runners) -> None:
    assert f"SANDBOX_ISOLATION={lesser.isolation.level}" in lesser.isolation.note
    marker = f"marker-{os.getpid()}"
    body = f"""
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(300)", "{marker}"])
    time.sleep(300)
time.sleep(0.5)
while True: pass
"""
    assert fault(lesser, body, wall_s=3.0).verdict is Verdict.TIMEOUT
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not any(f"\0{marker}".encode() in command for command in commands)


def test_landlock_hides_home_and_refuses_tcp() -> None:
    settings = SandboxSettings(isolation="reduced")
    with Runners(settings) as runners:
        if runners.isolation.level is not IsolationLevel.REDUCED:
            pytest.skip(runners.isolation.note)
        body = """
refused = []
for path in (hidden, "/etc/passwd", "/root"):
    try:
        open(path).close() if os.path.isfile(path) else os.listdir(path)
    except PermissionError:
        refused.append(path)
try:
    open("/usr/x", "w")
except OSError:
    refused.append("/usr")
try:
    socket.create_connection(("127.0.0.1", 80), timeout=2)
except PermissionError:
    refused.append("tcp")
open("mine", "w").close()
return len(refused)
""".replace("hidden", repr(str(Path(__file__).resolve())))
        assert answer(runners, body) == {"value": 5}
        assert answer(runners, "return os.path.exists('mine')") == {"value": False}


@pytest.mark.slow
def test_two_hundred_candidates_leave_nothing(runners: Runners) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    def resident_mb() -> float:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def one() -> None:
        with candidate(runners, "return x + 1") as runner:
            run(runners, runner)

    for _ in range(10):
        one()
    before, memory = descriptors(), resident_mb()
    for _ in range(200):
        one()
    assert descriptors() == before
    assert resident_mb() - memory < 20
    with runners.spawn(RunnerKind.INTERPRET, Role.CANDIDATE) as runner:
        runner.load(
            "import os, torch\nclass ModelNew(torch.nn.Module):\n def forward(self):\n"
            "  return len(os.listdir('/proc/self/fd')), int(open('/proc/1/statm').read().split()[1])\n"
            "def get_inputs(): return []\ndef get_init_inputs(): return []\n",
            "ModelNew",
        )
        assert run(runners, runner)[0].outputs.structure is not None
