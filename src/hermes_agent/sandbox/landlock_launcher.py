"""Runs inside the child of a Landlock sandbox: gives up rights for good, then becomes the command.

It runs with every command, so it imports little: json and typing would take as long as all the rest.
Its first argument is the plan, marshalled: rules (path and rights), filter, whether the network is off;
the rest is the command. With `abi` alone as the argument it prints the version that the kernel has.
"""

import ctypes
import marshal
import os
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    class Plan(TypedDict):
        """Limits of one command."""

        rules: list[tuple[str, bool]]
        filter: bytes
        is_offline: bool
        temporary: str


_CREATE, _ADD, _RESTRICT = 444, 445, 446
_NO_NEW_PRIVS, _SECCOMP, _DROP_BOUNDING = 38, 22, 24
_FIRST_WITH_NETWORK, _FIRST_WITH_SCOPES = 4, 6
_NOT_A_PLACE = 77
"""EBADFD: a pipe on standard input, which no rule is needed for."""

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Confine this process and run the command."""
    if sys.argv[1] == "abi":
        sys.stdout.write(f"{_abi()}\n")
        return
    plan: Plan = marshal.loads(bytes.fromhex(sys.argv[1]))
    _drop_capabilities()
    _check(_libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0))
    _restrict_files(plan)
    if plan["filter"]:
        _install(plan["filter"])
    os.environ["TMPDIR"] = plan["temporary"]  # noqa: TID251 -- the command's
    os.execvp(sys.argv[2], sys.argv[2:])


def _abi() -> int:
    return int(_libc.syscall(_CREATE, None, 0, 1))


def rights_of(abi: int) -> tuple[int, int]:
    """Return the rights to read, and those to read and write, that this version knows."""
    known = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)) - 1
    return 0b1101 & known, known


def _restrict_files(plan: "Plan") -> None:
    abi = _abi()
    read, write = rights_of(abi)
    network = 3 if abi >= _FIRST_WITH_NETWORK and plan["is_offline"] else 0
    scopes = 3 if abi >= _FIRST_WITH_SCOPES else 0
    attributes = struct.pack("QQQ", write, network, scopes)
    size = 8 if abi < _FIRST_WITH_NETWORK else 16 if abi < _FIRST_WITH_SCOPES else 24
    rules = _check(_libc.syscall(_CREATE, attributes, ctypes.c_size_t(size), 0))
    for path, may_write in plan["rules"]:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        rights = write if may_write else read
        if not os.path.isdir(path):  # noqa: PTH112 -- pathlib is slow to load, and this runs every time
            rights &= 0b1100_0000_0000_0111
        rule = struct.pack("=Qi", rights, fd)
        if _libc.syscall(_ADD, rules, 1, rule, 0) < 0 and ctypes.get_errno() != _NOT_A_PLACE:
            _check(-1)
        os.close(fd)
    _check(_libc.syscall(_RESTRICT, rules, 0))
    os.close(rules)


def _drop_capabilities() -> None:
    """As root: without this, a program that root starts has them all again."""
    if os.geteuid() == 0:
        for number in range(64):
            _libc.prctl(_DROP_BOUNDING, number, 0, 0, 0)
        header = struct.pack("Ii", 0x20080522, 0)
        _check(_libc.capset(header, bytes(24)))


def _install(code: bytes) -> None:
    program = ctypes.create_string_buffer(code, len(code))
    described = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(program))
    _check(_libc.prctl(_SECCOMP, 2, described, 0, 0))


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


if __name__ == "__main__":
    main()
