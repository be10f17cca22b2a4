"""Attacks on the sandbox, executed inside of it for real: as root, and as a user without rights."""

import shutil
import subprocess
import sys

import pytest

from hermes_agent.sandbox import landlock, limits
from tests.support.users import environment, python_of, users

pytestmark = pytest.mark.promise("P7")

BWRAP = shutil.which("bwrap")
needs_bwrap = pytest.mark.skipif(
    BWRAP is None, reason="bwrap is not installed; install the package bubblewrap to run this"
)
needs_landlock = pytest.mark.skipif(bool(landlock.problem()), reason=landlock.problem())
SANDBOXES = [
    pytest.param("bubblewrap", marks=needs_bwrap),
    pytest.param("landlock", marks=needs_landlock),
]
USERS = users()

OUTSIDE = """
import os, random, shutil, sys, tempfile
from pathlib import Path
from hermes_core import temp_folders  # what is loaded late may be out of the other user's reach
from hermes_agent.approval.gate import Permit
from hermes_agent.sandbox import detect, egress, limits
from hermes_agent.sandbox.sandboxes import Job
from hermes_core.settings import Settings, ToolSettings

kind, network, user, program, code = sys.argv[1:6]
limits.MAX_PROCESSES = 100
limits._memory_kb = lambda: 2 * 1024 * 1024
if int(user) != os.getuid():
    os.setgroups([])
    os.setgid(int(user))
    os.setuid(int(user))
    sys.executable = program
with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
    work = Path(folder, "work")
    work.mkdir()
    box = detect.choose(Settings(tools=ToolSettings(sandbox=kind, network=network)))
    environment = {**os.environ, "OUTSIDE": folder}
    job = Job([program, "-c", code], work, work, Path(folder, "hermes"), environment)
    child = box.spawn(Permit._for_tests(), job)
    pieces = []
    child.follow({child.stdout: pieces.append})
    sys.stdout.write(b"".join(pieces).decode("utf-8", "replace"))
    box.close()
"""


def inside(code: str, user: int, sandbox: str = "bubblewrap", network: str = "ask") -> str:
    """Run Python in a sandbox that this user makes, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", OUTSIDE, sandbox, network, str(user), python_of(user), code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd="/",
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


SYSCALLS = """
import ctypes, errno, os, platform
libc = ctypes.CDLL(None, use_errno=True)
arm = platform.machine() == "aarch64"
def attempt(name, x86, generic, *arguments):
    ctypes.set_errno(0)
    if libc.syscall(generic if arm else x86, *arguments) >= 0:
        print(name, "worked")
    elif ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS):
        print(name, errno.errorcode.get(ctypes.get_errno()))
"""

MS_REMOUNT_BIND = 32 | 4096
NEW_USER, NEW_NS, SIGCHLD = 0x10000000, 0x20000, 17
CALLS = {
    "mount": f"attempt('mount', 165, 40, b'none', b'/mnt', None, {MS_REMOUNT_BIND}, None)",
    "tmpfs": "attempt('mount', 165, 40, b'x', b'/mnt', b'tmpfs', 0, None)",
    "umount": "attempt('umount2', 166, 39, b'/home', 2); attempt('umount2', 166, 39, b'/run', 2)",
    "open_tree": "attempt('open_tree', 428, 428, -100, b'/', 1)",
    "fsopen": "attempt('fsopen', 430, 430, b'tmpfs', 0)",
    "pivot_root": "attempt('pivot_root', 155, 41, b'/', b'/')",
    "unshare": f"attempt('unshare', 272, 97, {NEW_USER | NEW_NS})",
    "clone": f"attempt('clone', 56, 220, {NEW_USER | SIGCHLD}, 0, 0, 0, 0)",
    "clone3": "attempt('clone3', 435, 435, None, 0)",
    "setns": "attempt('setns', 308, 268, os.open('/proc/self/ns/net', 0), 0)",
    "bpf": "attempt('bpf', 321, 280, 0, None, 0)",
    "perf": "attempt('perf_event_open', 298, 241, None, 0, -1, -1, 0)",
    "keyctl": "attempt('keyctl', 250, 219, 0, -3, 1)",
    "userfaultfd": "attempt('userfaultfd', 323, 282, 1)",
    "io_uring": "attempt('io_uring_setup', 425, 425, 1, None)",
    "modules": "attempt('init_module', 175, 105, None, 0, b'')",
    "reboot": "attempt('reboot', 169, 142, 0, 0, 0, None)",
    "terminal": "a, b = os.openpty(); attempt('ioctl', 16, 29, b, 0x5412, b'x')",
    "terminal, disguised": "a, b = os.openpty(); attempt('ioctl', 16, 29, b, 0x7_0000_5412, b'x')",
}


@pytest.mark.parametrize("sandbox", SANDBOXES)
@pytest.mark.parametrize("user", USERS)
def test_calls_that_open_the_kernel_are_refused(user: int, sandbox: str) -> None:
    assert inside("\n".join([SYSCALLS, *CALLS.values()]), user, sandbox) == ""


@pytest.mark.parametrize("sandbox", SANDBOXES)
@pytest.mark.parametrize("user", USERS)
def test_a_command_has_no_capabilities_and_gets_none(user: int, sandbox: str) -> None:
    code = """
import os
for line in open("/proc/self/status"):
    name, _, value = line.partition(":")
    if name in ("CapInh", "CapPrm", "CapEff", "CapAmb") or (name == "CapBnd" and not os.getuid()):
        assert int(value, 16) == 0, line
    if name in ("NoNewPrivs", "Seccomp"):
        print(name, value.strip())
"""
    assert inside(code, user, sandbox) == "NoNewPrivs\t1\nSeccomp\t2".replace("\t", " ")


@pytest.mark.parametrize("sandbox", SANDBOXES)
@pytest.mark.parametrize("user", USERS)
def test_programs_cannot_remount_make_devices_or_trace_others(user: int, sandbox: str) -> None:
    code = """
import os, stat, subprocess
def attempt(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except FileNotFoundError:
        return
    if done.returncode == 0:
        print("worked:", *command)
attempt("mount", "-o", "remount,rw,bind", "/mnt")
attempt("umount", "-l", "/home")
attempt("umount", "/run")
attempt("mknod", "disk", "b", "8", "0")
attempt("unshare", "--user", "--map-root-user", "true")
attempt("nsenter", "--target", "1", "--mount", "true")
attempt("chroot", "/", "true")
attempt("setpriv", "--reuid=1", "true")
for place in ("/etc/hermes-test", "/usr/hermes-test", "/sys/kernel/x", os.environ["OUTSIDE"] + "/x"):
    try:
        open(place, "w").close()
    except OSError:
        continue
    print("wrote", place)
"""
    assert inside(code, user, sandbox) == ""


@needs_bwrap
@pytest.mark.parametrize("user", USERS)
def test_in_bubblewrap_no_process_outside_is_seen(user: int) -> None:
    code = """
import os
for pid in filter(str.isdigit, os.listdir("/proc")):
    words = open(f"/proc/{pid}/cmdline").read()
    if "hermes_agent.approval" in words and "subprocess.run(command" not in words:
        print("sees", pid)
"""
    assert inside(code, user) == ""


@needs_bwrap
@pytest.mark.parametrize("user", USERS)
def test_what_programs_need_still_works(user: int) -> None:
    code = """
import multiprocessing, os, socket, subprocess, threading
assert subprocess.check_output(["sh", "-c", "echo a | cat"]) == b"a\\n"
thread = threading.Thread(target=lambda: None); thread.start(); thread.join()
for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
    socket.socket(family).close()
a, b = os.openpty()
os.mkfifo("fifo")
print(os.getuid())
"""
    assert inside(code, user) == str(user)


@pytest.mark.parametrize("sandbox", SANDBOXES)
@pytest.mark.parametrize("user", USERS)
def test_a_fork_bomb_harms_only_itself(user: int, sandbox: str) -> None:
    code = """
import os, signal, time
made = []
for _ in range(3000):
    try:
        pid = os.fork()
    except BlockingIOError:
        print("stopped")
        break
    if not pid:
        while True:
            try:
                os.fork()
            except BlockingIOError:
                signal.pause()
    made.append(pid)
"""
    if user == 0 and not _has_control_groups():
        pytest.skip("root has no limit of processes where control groups cannot be written")
    assert inside(code, user, sandbox) == "stopped"


def _has_control_groups() -> bool:
    control_groups = limits.Limits()
    try:
        return bool(control_groups.words()[6])
    finally:
        control_groups.close()


@pytest.mark.parametrize("sandbox", SANDBOXES)
@pytest.mark.parametrize("user", USERS)
def test_a_memory_hog_harms_only_itself(user: int, sandbox: str) -> None:
    code = """
import resource
bytearray(200_000_000)
try:
    hog = [bytearray(100_000_000) for _ in range(25)]
except MemoryError:
    print("stopped")
soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
try:
    resource.setrlimit(resource.RLIMIT_DATA, (-1, -1))
except (ValueError, OSError):
    print("and stays so")
print(open("/proc/self/oom_score_adj").read())
"""
    assert inside(code, user, sandbox) == "stopped\nand stays so\n500"


@pytest.mark.parametrize("sandbox", SANDBOXES)
@pytest.mark.parametrize("user", USERS)
def test_a_file_cannot_grow_without_end(user: int, sandbox: str) -> None:
    code = """
import errno, os, resource
limit, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
print(limit == hard, 0 < limit < 2**40)
file = os.open("big", os.O_RDWR | os.O_CREAT)
os.pwrite(file, b"x", limit - 1)  # sparse: it takes one block
try:
    os.pwrite(file, b"x", limit)
except OSError as error:
    print(errno.errorcode[error.errno])
os.unlink("big")
try:
    resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
except (ValueError, OSError):
    print("and stays so")
"""
    assert inside(code, user, sandbox) == "True True\nEFBIG\nand stays so"


@needs_landlock
@pytest.mark.parametrize("user", USERS)
def test_landlock_keeps_commands_from_other_processes_and_services(user: int) -> None:
    code = """
import os, socket
outside = os.environ["OUTSIDE"]
def attempt(name, call, *arguments):
    try:
        call(*arguments)
    except OSError:
        return
    print("worked:", name)
parent = os.getppid()
while parent > 1:  # up to the process that made the sandbox
    child, parent = parent, int(open(f"/proc/{parent}/stat").read().rpartition(")")[2].split()[1])
    if "hermes_agent.approval" in open(f"/proc/{child}/cmdline").read():
        for name in ("environ", "mem", "maps", "fd/0", "root/etc/passwd", "cwd/x"):
            attempt(name, open, f"/proc/{child}/{name}")
        if "subprocess" not in open(f"/proc/{child}/cmdline").read():
            attempt("signal", os.kill, child, 0)
attempt("unix socket", socket.socket, socket.AF_UNIX)
attempt("vsock", socket.socket, 40)
attempt("packets", socket.socket, 17, socket.SOCK_RAW)
attempt("write", open, outside + "/x", "w")
attempt("list", os.listdir, outside)
attempt("home", os.listdir, "/root")
attempt("run", os.listdir, "/run")
attempt("tmp", open, "/tmp/hermes-test", "w")
attempt("truncate", os.truncate, "/etc/passwd", 10**12) if os.getuid() else None
attempt("device", open, "/dev/kmsg")
attempt("shared memory", open, "/dev/shm/hermes-test", "w")
attempt("kernel", open, "/proc/sys/kernel/core_pattern", "r+")
open("inside", "w").close()
os.rename("inside", "moved")
os.mkdir("folder"), os.rename("moved", "folder/moved")
socket.socketpair(), socket.socket().close()
print("done")
"""
    assert inside(code, user, "landlock", network="open") == "done"
