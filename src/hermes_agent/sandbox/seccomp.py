"""The system calls that no confined command may make, as a seccomp filter in the kernel's own byte code.

Namespaces and file rules hold what a command reaches; the filter takes away the calls with which
holes in the kernel are found: mounts, namespaces of one's own, keys, modules, BPF, io_uring.
"""

import errno
import platform
import struct
from typing import Literal, NamedTuple

Sockets = Literal["usual", "internet", "none"]
"""`usual`: local, internet and netlink sockets. `internet`: no local ones, which reach services of the
host where only files are confined. `none`: only pairs."""

_NUMBERS = {
    "x86_64": {
        "clone": 56, "clone3": 435, "unshare": 272, "ioctl": 16, "socket": 41, "acct": 163,
        "add_key": 248, "bpf": 321, "delete_module": 176, "finit_module": 313, "fsconfig": 431,
        "fsmount": 432, "fsopen": 430, "fspick": 433, "init_module": 175, "io_uring_enter": 426,
        "io_uring_register": 427, "io_uring_setup": 425, "kexec_file_load": 320, "kexec_load": 246,
        "keyctl": 250, "mount": 165, "mount_setattr": 442, "move_mount": 429,
        "open_by_handle_at": 304, "open_tree": 428, "perf_event_open": 298, "pivot_root": 155,
        "quotactl": 179, "reboot": 169, "request_key": 249, "setns": 308, "swapoff": 168,
        "swapon": 167, "syslog": 103, "umount2": 166, "userfaultfd": 323,
    },
    "aarch64": {
        "clone": 220, "clone3": 435, "unshare": 97, "ioctl": 29, "socket": 198, "acct": 89,
        "add_key": 217, "bpf": 280, "delete_module": 106, "finit_module": 273, "fsconfig": 431,
        "fsmount": 432, "fsopen": 430, "fspick": 433, "init_module": 105, "io_uring_enter": 426,
        "io_uring_register": 427, "io_uring_setup": 425, "kexec_file_load": 294, "kexec_load": 104,
        "keyctl": 219, "mount": 40, "mount_setattr": 442, "move_mount": 429,
        "open_by_handle_at": 265, "open_tree": 428, "perf_event_open": 241, "pivot_root": 41,
        "quotactl": 60, "reboot": 142, "request_key": 218, "setns": 268, "swapoff": 225,
        "swapon": 224, "syslog": 116, "umount2": 39, "userfaultfd": 282,
    },
}  # fmt: skip
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_JUDGED = ("clone", "clone3", "unshare", "ioctl", "socket")
"""Refused only with some arguments, or in a way of their own."""

_X32 = 0x4000_0000
_NEW_USER = 0x1000_0000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_FAMILIES = {"usual": (1, 2, 10, 16), "internet": (2, 10, 16), "none": ()}
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK."""

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF_0000, 0x0005_0000, 0x8000_0000
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24
"""Offsets in `struct seccomp_data`; of the arguments the lower halves (little-endian)."""

_ENDS = {
    "allow": _ALLOW,
    "refuse": _REFUSE | errno.EPERM,
    "missing": _REFUSE | errno.ENOSYS,
    "family": _REFUSE | errno.EAFNOSUPPORT,
    "kill": _KILL,
}


class _Step(NamedTuple):
    """One instruction; jumps name an end, or go on with the next one."""

    code: int
    operand: int
    then: str = ""
    otherwise: str = ""


def program(sockets: Sockets = "usual", machine: str = "") -> bytes:
    """Return the filter for this machine; empty for one whose calls are not known here."""
    machine = machine or {"arm64": "aarch64"}.get(platform.machine(), platform.machine())
    if machine not in _NUMBERS:
        return b""
    numbers = _NUMBERS[machine]
    steps = [
        _Step(_LOAD, _ARCHITECTURE),
        _Step(_EQUAL, _ARCHITECTURES[machine], otherwise="kill"),
        _Step(_LOAD, _NUMBER),
        _Step(_AT_LEAST, _X32, then="missing"),
        # The flags of clone3 lie in memory, which a filter cannot read; without it, clone is used.
        _Step(_EQUAL, numbers["clone3"], then="missing"),
    ]
    steps += [
        _Step(_EQUAL, number, then="refuse")
        for name, number in numbers.items()
        if name not in _JUDGED
    ]
    for name in ("clone", "unshare"):
        test = [_Step(_ANY_BIT, _NEW_USER, then="refuse")]
        steps += _when(numbers[name], _FIRST, test, "allow")
    requests = [_Step(_EQUAL, request, then="refuse") for request in (_TIOCSTI, _TIOCLINUX)]
    steps += _when(numbers["ioctl"], _SECOND, requests, "allow")
    families = [_Step(_EQUAL, family, then="allow") for family in _FAMILIES[sockets]]
    steps += _when(numbers["socket"], _FIRST, families, "family")
    return _assembled([*steps, *_jump("allow")])


def _when(number: int, offset: int, tests: list[_Step], end: str) -> list[_Step]:
    """Run tests on an argument of one call, and skip them for the others."""
    body = [_Step(_LOAD, offset), *tests, *_jump(end)]
    return [_Step(_EQUAL, number, otherwise=f"+{len(body)}"), *body]


def _jump(end: str) -> list[_Step]:
    return [_Step(_AT_LEAST, 0, then=end)]


def _assembled(steps: list[_Step]) -> bytes:
    ends = {name: len(steps) + position for position, name in enumerate(_ENDS)}

    def distance(here: int, target: str) -> int:
        if target.startswith("+"):
            return int(target)
        return ends[target] - here - 1 if target else 0

    lines = [
        struct.pack(
            "HBBI", step.code, distance(at, step.then), distance(at, step.otherwise), step.operand
        )
        for at, step in enumerate(steps)
    ]
    return b"".join(
        [*lines, *(struct.pack("HBBI", _RETURN, 0, 0, value) for value in _ENDS.values())]
    )
