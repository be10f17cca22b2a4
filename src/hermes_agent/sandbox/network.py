"""A network namespace for the commands of one conversation, with a single way out: a socket of ours.

Inside there is nothing but a loopback device. A socket that listens on it belongs to the namespace for
as long as it is open, also in the hands of a process outside: so the proxy runs in our process and needs
no helper in the sandbox. All commands of a conversation share the namespace; a server that one starts
can be reached by the next.
"""

import array
import os
import shutil
import socket
import subprocess
import sys

_SETUP_TIMEOUT_S = 10.0

_SET_UP = """
import ctypes, fcntl, os, socket, struct, sys
NEW_USER, NEW_NET, SET_FLAGS, UP_AND_RUNNING = 0x10000000, 0x40000000, 0x8914, 0x41
ours = socket.socket(fileno=int(sys.argv[1]))
user, group = os.geteuid(), os.getegid()
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(NEW_USER | NEW_NET):
    sys.exit(os.strerror(ctypes.get_errno()))
maps = {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
for name, text in maps.items():
    with open(f"/proc/self/{name}", "w") as file:
        file.write(text)
listener = socket.socket()
fcntl.ioctl(listener, SET_FLAGS, struct.pack("16sH22x", b"lo", UP_AND_RUNNING))
listener.bind(("127.0.0.1", 0))
listener.listen(128)
spaces = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in ("user", "net")]
descriptors = struct.pack("3i", listener.fileno(), *spaces)
ours.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
"""
"""Makes the namespaces in a process of its own, and sends the socket and the namespaces."""


class NetworkUnavailableError(Exception):
    """A network namespace cannot be had here; the text is the reason."""


class NetworkNamespace:
    """A network namespace and the socket that listens in it."""

    def __init__(self, nsenter: str, listener: socket.socket, user: int, net: int) -> None:
        self.listener = listener
        self._nsenter = nsenter
        self._user = user
        self._net = net

    @classmethod
    def make(cls) -> "NetworkNamespace":
        """Make a namespace; raises NetworkUnavailableError."""
        nsenter = shutil.which("nsenter")
        if nsenter is None:
            raise NetworkUnavailableError("nsenter is not installed (package util-linux)")
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.settimeout(_SETUP_TIMEOUT_S)
            command = [sys.executable, "-I", "-S", "-c", _SET_UP, str(theirs.fileno())]
            try:
                subprocess.run(
                    command,
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=_SETUP_TIMEOUT_S,
                    check=True,
                )
                descriptors = _receive(ours)
            except subprocess.CalledProcessError as error:
                lines = error.stderr.decode("utf-8", "replace").strip().splitlines()
                raise NetworkUnavailableError(" ".join(lines[-1:])) from error
            except (OSError, subprocess.TimeoutExpired) as error:
                raise NetworkUnavailableError(str(error)) from error
        listener, user, net = descriptors
        return cls(nsenter, socket.socket(fileno=listener), user, net)

    @property
    def port(self) -> int:
        """The port of the way out, on 127.0.0.1 inside."""
        return self.listener.getsockname()[1]

    def enter(self, descriptors: list[int]) -> list[str]:
        """Return the words before a command that runs in here.

        The descriptors that the command has to inherit are added; the caller closes them.
        """
        user, net = os.dup(self._user), os.dup(self._net)
        descriptors += (user, net)
        spaces = [f"--user=/proc/self/fd/{user}", f"--net=/proc/self/fd/{net}"]
        return [self._nsenter, *spaces, "--preserve-credentials", "--"]

    def close(self) -> None:
        """Close what keeps the namespace; it ends with the last process in it."""
        self.listener.close()
        os.close(self._user)
        os.close(self._net)


def _receive(ours: socket.socket) -> tuple[int, int, int]:
    descriptors = array.array("i", [0, 0, 0])
    _, ancillary, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(descriptors.itemsize * 3))
    if not ancillary:
        raise OSError("the namespace did not send its socket")
    listener, user, net = array.array("i", ancillary[0][2])
    return listener, user, net
