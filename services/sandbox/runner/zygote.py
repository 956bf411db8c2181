"""The zygote: imports torch and triton once, then forks one confined child for each request of the judge.

Started as pid 1 of its own namespace where there is one. It runs no user code, and every process below it dies with its
child.
"""

import dataclasses
import gc
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import confine, wire

_LIMIT = 1 << 20
_WATCH_S = 0.2
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Zygote:
    """State of one zygote: its control socket and at most one living child."""

    control: socket.socket
    config: dict[str, Any]
    wakeup: int
    child: int = 0
    baseline_bytes: int = 0


def main() -> None:
    """Serve the control socket whose descriptor is the first argument, until its other end closes."""
    control = socket.socket(fileno=int(sys.argv[1]))
    config, _ = wire.receive(control, _LIMIT)
    confine.prctl(confine.PR_SET_DUMPABLE, 0)
    if os.getpid() == 1:
        confine.prctl(confine.PR_SET_PDEATHSIG, signal.SIGKILL)  # bubblewrap's; a judge's death closes the socket
    else:
        confine.prctl(confine.PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    wakeup = _wake_on_exit()
    try:
        _preload(config)
        _clean(config["scratch"])
    except BaseException:
        wire.send(control, {"failed": traceback.format_exc()[-4000:]})
        raise
    gc.collect()
    gc.freeze()
    zygote = Zygote(control, config, wakeup, baseline_bytes=_anonymous_bytes(os.getpid()))
    wire.send(control, {"ready": True, "versions": _versions()})
    while _step(zygote):
        pass
    _kill_all(zygote)


def _preload(config: dict[str, Any]) -> None:
    import torch

    torch.set_num_threads(1)
    from . import child, interpreter  # noqa: F401 (the child's code is loaded here, once)

    if config["interpret"]:
        interpreter.install()
    # only now: its kernel is the interpreter's or the compiler's for good
    from . import warmup

    warmup.interpret() if config["interpret"] else warmup.compile_for(config["warm_target"])


def _versions() -> dict[str, str]:
    import torch
    import triton

    return {"torch": torch.__version__, "triton": triton.__version__, "python": sys.version.split()[0]}


def _wake_on_exit() -> int:
    """A descriptor that is readable once a child has changed state."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    return reading


def _step(zygote: Zygote) -> bool:
    """Handle what came in; False once the judge is gone."""
    timeout = _WATCH_S if zygote.child else None
    control = zygote.control.fileno()
    readable, _, _ = select.select([control, zygote.wakeup], [], [], timeout)
    if zygote.wakeup in readable:
        os.read(zygote.wakeup, 4096)
    if control in readable and not _serve(zygote):
        return False
    if zygote.child:
        _watch(zygote)
    elif zygote.wakeup in readable:
        _reap()
    return True


def _serve(zygote: Zygote) -> bool:
    try:
        request, fds = wire.receive(zygote.control, _LIMIT)
    except (EOFError, ConnectionError, wire.ProtocolError):
        return False
    if "fork" in request:
        _fork(zygote, request["fork"], fds)
    elif "dump" in request and zygote.child:
        os.kill(zygote.child, signal.SIGUSR1)
    elif "kill" in request and zygote.child:
        _end(zygote, "killed")
    return True


def _fork(zygote: Zygote, request: dict[str, Any], fds: list[int]) -> None:
    try:
        pid = os.fork()
    except OSError as error:
        wire.send(zygote.control, {"refused": str(error)})
    else:
        if pid == 0:
            _become_child(zygote, request, fds)
        zygote.child = pid
    for fd in fds:
        os.close(fd)


def _become_child(zygote: Zygote, request: dict[str, Any], fds: list[int]) -> None:
    """Never returns. Everything of the zygote is closed and everything is dropped before the first request is read."""
    channel, output, faults = fds
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        _close_all_but({0, 1, 2, channel, faults})
        os.setsid()
        _confine(zygote.config, alone=request["alone"])
        _clean(zygote.config["scratch"])
        tempfile.tempdir = zygote.config["scratch"][0]
        os.chdir(tempfile.tempdir)
        from .child import serve

        serve(socket.socket(fileno=channel), faults, {**zygote.config, **request})
    except BaseException:  # noqa: BLE001 (the last word of a process that ends here)
        os.write(faults, traceback.format_exc()[-4000:].encode(errors="replace"))
        os._exit(70)
    os._exit(0)


def _confine(config: dict[str, Any], *, alone: bool) -> None:
    """In this order: the limit on processes counts the new user's, seccomp allows nothing of this afterwards."""
    confine.volunteer_for_oom()
    confine.prctl(confine.PR_SET_PDEATHSIG, signal.SIGKILL)
    if config["uid"] is not None:
        confine.become(config["uid"])
        confine.prctl(confine.PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        confine.drop_capabilities()
    confine.prctl(confine.PR_SET_NO_NEW_PRIVS, 1)
    limits = confine.Limits(**config["limits"])
    if alone and config["counts_alone"]:
        limits = dataclasses.replace(limits, processes=_present(config))
    confine.limit(limits)
    if config["landlock"] is not None:
        confine.landlock(**config["landlock"])
    confine.seccomp()


def _present(config: dict[str, Any]) -> int:
    """Processes and threads that count for this child's limit now: with no more, it can start none."""
    return 1 if config["uid"] is not None else 1 + len(os.listdir(f"/proc/{os.getppid()}/task"))  # noqa: PTH208


def _clean(scratch: list[str]) -> None:
    """Remove what the imports or the child before left: it ran as the same user, and nothing of it lives any more."""
    for folder in scratch:
        for root, folders, _ in os.walk(folder):
            for name in folders:
                _make_writable(Path(root, name))
        for entry in os.scandir(folder):
            _remove(Path(entry.path))
        if any(os.scandir(folder)):
            raise OSError(f"{folder} could not be emptied")


def _make_writable(folder: Path) -> None:
    if not folder.is_symlink():
        folder.chmod(0o700)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _close_all_but(keep: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 (names only)
        if int(name) not in keep:
            try:
                os.close(int(name))
            except OSError:
                continue  # the descriptor that listed them


def _watch(zygote: Zygote) -> None:
    """End the child's whole tree once it is dead, too numerous, or as large as one process may be."""
    pid, status = os.waitpid(zygote.child, os.WNOHANG)
    if pid:
        _end(zygote, "exited", status)
        return
    tree = _descendants()
    if len(tree) > zygote.config["tree_processes"]:
        _end(zygote, "processes")
    elif _extra_bytes(tree, zygote.baseline_bytes) > zygote.config["limits"]["memory_bytes"]:
        _end(zygote, "memory")


def _end(zygote: Zygote, reason: str, status: int | None = None) -> None:
    """Kill everything, reap everything, then tell the judge."""
    if status is None:
        os.kill(zygote.child, signal.SIGKILL)
        _, status = os.waitpid(zygote.child, 0)
    _kill_all(zygote)
    zygote.child = 0
    code = os.waitstatus_to_exitcode(status)
    wire.send(zygote.control, {"ended": reason, "code": code})


def _kill_all(zygote: Zygote) -> None:
    """As pid 1, everything else in the namespace; elsewhere every descendant, which the subreaper has adopted."""
    if os.getpid() == 1:
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            return
        while _reap(wait=True):
            pass
        return
    while children := _children(os.getpid()):
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        for pid in children:
            os.waitpid(pid, 0)


def _reap(*, wait: bool = False) -> bool:
    try:
        return os.waitpid(-1, 0 if wait else os.WNOHANG)[0] > 0
    except ChildProcessError:
        return False


def _children(parent: int) -> list[int]:
    return [pid for pid, above in _processes() if above == parent]


def _processes() -> list[tuple[int, int]]:
    """(pid, parent) of every visible process."""
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            try:
                stat = Path("/proc", name, "stat").read_text(errors="replace")
            except OSError:
                continue  # it has ended since
            found.append((int(name), int(stat.rpartition(")")[2].split()[1])))
    return found


def _descendants() -> list[int]:
    """Every process below this one."""
    parents, mine = dict(_processes()), os.getpid()
    return [pid for pid in parents if _descends(pid, mine, parents)]


def _extra_bytes(tree: list[int], shared_bytes: int) -> int:
    """Anonymous memory of these processes beyond what each shares with the zygote."""
    return sum(max(0, _anonymous_bytes(pid) - shared_bytes) for pid in tree)


def _descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == ancestor:
            return True
    return False


def _anonymous_bytes(pid: int) -> int:
    try:
        fields = Path("/proc", str(pid), "statm").read_text().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * _PAGE
