"""Brings up the loopback of a new network namespace, then becomes the command that it is given."""

import fcntl
import os
import socket
import struct
import sys

SIOCSIFFLAGS = 0x8914
UP_AND_RUNNING = 0x41

with socket.socket() as anything:
    fcntl.ioctl(anything, SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", UP_AND_RUNNING))
os.execvp(sys.argv[1], sys.argv[1:])
