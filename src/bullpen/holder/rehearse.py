"""Runs a holder's code once in the factory, before holders are forked.

CPython writes to functions while they run: counters, caches, rewritten instructions. Done in the
factory, these pages are shared by all holders; done in each, every holder pays for them.
"""

import json
import os
import select
import signal
from _socket import AF_UNIX, SOCK_STREAM, socket, socketpair

from bullpen.holder.child import PR_SET_CHILD_SUBREAPER, prctl, reap
from bullpen.holder.frames import frame, json_frame
from bullpen.holder.records import start_times
from bullpen.holder.request import parse_request, read_request
from bullpen.holder.start import hand_over, take_over

ROUNDS = 16  # after eight calls a function is warm
REQUEST = json.dumps(
    {
        "do": "hold",
        "name": "x",
        "socket": "/nowhere/s",
        "session": "/nowhere",
        "argv": ["x"],
        "env": {"X": "x"},
        "cwd": "/",
        "ring_bytes": 64,
    }
).encode()
REQUEST += b"\n"


def rehearse() -> None:
    """A few short days of a holder without a program, on the null device."""
    for _ in range(ROUNDS):
        _rehearse()


def _rehearse() -> None:
    prctl(PR_SET_CHILD_SUBREAPER, 0)
    line, theirs = socketpair()
    line.send(REQUEST)
    request = parse_request(read_request(theirs.fileno()))
    start_times(os.getpid())
    output, program = os.pipe()
    os.set_blocking(output, False)
    ends = [socket(AF_UNIX, SOCK_STREAM).detach(), *(_null() for _ in range(3)), output]
    hand_over(theirs, request, ends, 0.0)
    holder = take_over(line, 0)
    assert holder is not None
    holder.poll.register(holder.child.output, select.POLLIN)
    reap()
    client, other = socketpair()
    holder.welcome(other.detach())
    client.send(json_frame(b"A", {"replay": True, "nudge": False}))
    holder.turn(0)
    for _ in range(3):  # more than the ring takes
        os.write(program, b"\x1b[?25lsome output\x1b[?25h" * 200)
        holder.turn(0)
    client.send(frame(b"S"))
    holder.turn(0)
    client.close()
    holder.turn(0)
    signal.set_wakeup_fd(-1)
    for sock in (line, theirs, holder.listener):
        sock.close()
    ours = (holder.lock, holder.log.file, holder.log.timing, holder.child.output, *holder.wake)
    for descriptor in (program, *ends, *ours):
        os.close(descriptor)


def _null() -> int:
    return os.open(os.devnull, os.O_RDWR)
