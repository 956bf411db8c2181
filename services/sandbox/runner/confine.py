"""What a forked child does to itself before any user code: limits, another user, Landlock, seccomp.

Needs only the standard library. System call numbers and structures: the kernel's uapi headers `landlock.h`,
`seccomp.h`, `filter.h`, `prctl.h` and the architecture's `unistd.h`.
"""

import ctypes
import errno
import os
import platform
import resource
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

_CAPABILITY_VERSION_3 = 0x20080522
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_LANDLOCK_CREATE_RULESET_VERSION = 1
_LANDLOCK_RULE_PATH_BENEATH = 1
_FS_EXECUTE, _FS_WRITE_FILE, _FS_READ_FILE, _FS_READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_FS_REFER, _FS_TRUNCATE, _FS_IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_READ = _FS_EXECUTE | _FS_READ_FILE | _FS_READ_DIR
_FILE_RIGHTS = _FS_EXECUTE | _FS_WRITE_FILE | _FS_READ_FILE | _FS_TRUNCATE | _FS_IOCTL_DEV
_NET_BIND_TCP, _NET_CONNECT_TCP = 1 << 0, 1 << 1
_SCOPE_ABSTRACT_UNIX_SOCKET, _SCOPE_SIGNAL = 1 << 0, 1 << 1

# System V objects, message queues and kernel keyrings outlive a process, so one candidate could leave something to the
# next. memfd would escape the limit on memory. The rest widens the kernel's attack surface, and no op needs it.
_DENIED: dict[str, tuple[int, int]] = {  # name: (x86_64, aarch64)
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "kexec_load": (246, 104),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "open_by_handle_at": (304, 265),
    "personality": (135, 92),
}
_SOCKET, _CLONE, _PRLIMIT = (41, 198), (56, 220), (302, 261)
_CLONE3 = 435
_CLONE_NEWUSER = 0x10000000
_AF_UNIX = 1
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_LD_ABS, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06


@dataclass(frozen=True)
class Limits:
    """Resource limits of one child. Bytes and CPU seconds; `processes` counts the whole user's."""

    memory_bytes: int
    cpu_s: int
    processes: int
    file_bytes: int
    open_files: int


def prctl(option: int, value: int) -> None:
    """prctl(2) with one argument. OSError if refused."""
    _checked(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), "prctl")


def limit(limits: Limits) -> None:
    """Set the resource limits, hard ones too."""
    for kind, value in (
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_NPROC, limits.processes),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
    # a soft limit below the hard one, so that SIGXCPU tells it from any other SIGKILL
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_s, limits.cpu_s + 5))


def volunteer_for_oom() -> None:
    """Let the kernel, when short of memory, take this process before any of ours.

    Dumpable for that moment: what /proc shows of a process that is not belongs to root, whoever runs it.
    """
    prctl(PR_SET_DUMPABLE, 1)
    with open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123
        file.write("1000")
    prctl(PR_SET_DUMPABLE, 0)


def become(uid: int) -> None:
    """Drop root for good: no groups, no capabilities."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def drop_capabilities() -> None:
    """Keep the user but none of root's powers; with no_new_privs, exec gives none back."""
    header = struct.pack("II", _CAPABILITY_VERSION_3, 0)
    _checked(_libc.capset(ctypes.c_char_p(header), ctypes.c_char_p(bytes(24))), "capset")


def landlock_abi() -> int:
    """Landlock's version in this kernel; 0 where it is missing or off."""
    got = _libc.syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), _LANDLOCK_CREATE_RULESET_VERSION)
    return max(0, int(got))


def landlock(readable: Iterable[str], writable: Iterable[str]) -> None:
    """See only these folders, write only the second ones; no TCP from ABI 4, no signals to outsiders from ABI 6."""
    abi = landlock_abi()
    if abi == 0:
        raise OSError(errno.ENOSYS, "this kernel has no Landlock")
    handled = (1 << 13) - 1
    handled |= _FS_REFER if abi >= 2 else 0
    handled |= _FS_TRUNCATE if abi >= 3 else 0
    handled |= _FS_IOCTL_DEV if abi >= 5 else 0
    net = _NET_BIND_TCP | _NET_CONNECT_TCP if abi >= 4 else 0
    scope = _SCOPE_ABSTRACT_UNIX_SOCKET | _SCOPE_SIGNAL if abi >= 6 else 0
    attributes = struct.pack("QQQ", handled, net, scope)[: 24 if abi >= 6 else 16 if abi >= 4 else 8]
    ruleset = _checked(
        _libc.syscall(_LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0), "landlock"
    )
    for path in readable:
        _allow(ruleset, path, _READ)
    for path in writable:
        _allow(ruleset, path, handled & ~_FS_EXECUTE)
    _checked(_libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0), "landlock")
    os.close(ruleset)


def seccomp() -> bool:
    """Refuse system calls that no kernel needs (EPERM). False on a machine type without a table."""
    machine = platform.machine()
    if machine not in _AUDIT_ARCH:
        return False
    column = 0 if machine == "x86_64" else 1
    program = _filter(_AUDIT_ARCH[machine], [numbers[column] for numbers in _DENIED.values()], column)
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(code))
    _checked(_libc.prctl(PR_SET_SECCOMP, 2, ctypes.c_char_p(header), 0, 0), "seccomp")
    return True


def _filter(arch: int, denied: Sequence[int], column: int) -> bytes:
    """Classic BPF over struct seccomp_data: number at 0, architecture at 4, first argument's low half at 16."""
    refuse = 0x00050000 | errno.EPERM
    missing = 0x00050000 | errno.ENOSYS
    code = [(_LD_ABS, 0, 0, 4), (_JEQ, 1, 0, arch), (_RET, 0, 0, _KILL), (_LD_ABS, 0, 0, 0)]
    code += [(_JGE, 0, 1, _X32_BIT), (_RET, 0, 0, _KILL)]
    for number in denied:
        code += [(_JEQ, 0, 1, number), (_RET, 0, 0, refuse)]
    # glibc falls back to clone, whose flags can be read here, where clone3 is missing
    code += [(_JEQ, 0, 1, _CLONE3), (_RET, 0, 0, missing)]
    code += [(_JEQ, 0, 3, _CLONE[column]), (_LD_ABS, 0, 0, 16), (_JSET, 0, 9, _CLONE_NEWUSER), (_RET, 0, 0, refuse)]
    code += [(_JEQ, 0, 3, _SOCKET[column]), (_LD_ABS, 0, 0, 16), (_JEQ, 5, 0, _AF_UNIX), (_RET, 0, 0, refuse)]
    # limits of another process: as the same user one could starve the zygote
    code += [(_JEQ, 0, 3, _PRLIMIT[column]), (_LD_ABS, 0, 0, 16), (_JEQ, 1, 0, 0), (_RET, 0, 0, refuse)]
    code += [(_RET, 0, 0, _ALLOW)]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    if not os.path.isdir(path):  # noqa: PTH112 (pathlib is not needed here)
        rights &= _FILE_RIGHTS
    rule = struct.pack("=Qi", rights, fd)
    _checked(_libc.syscall(_LANDLOCK_ADD_RULE, ruleset, _LANDLOCK_RULE_PATH_BENEATH, rule, 0), "landlock")
    os.close(fd)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return int(result)
