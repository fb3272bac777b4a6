"""A holder that dies of a bug says so."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

# A holder whose loop breaks at once, in a process of its own: `hold` never returns.
BROKEN = """
import json, os, socket, sys
from bullpen.holder.listeners import KeptListeners
from bullpen.holder.main import Holder
from bullpen.holder.start import hold

def broken(self):
    raise LookupError("planted")

Holder.run = broken
session = sys.argv[1]
request = {"do": "hold", "name": "amy", "socket": session + "/s", "session": session,
           "argv": ["true"], "env": {"PATH": "/bin:/usr/bin"}, "cwd": "/"}
ours, theirs = socket.socketpair()
ours.sendall(json.dumps(request).encode() + b"\\n")
turns = os.open(session + "/turns", os.O_RDWR | os.O_CREAT)
hold(theirs.fileno(), os.dup(turns), turns, os.getpid(), KeptListeners(session, None))
"""


def test_k1_a_holder_that_dies_of_a_bug_leaves_a_trace(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", BROKEN, tmp_path], check=False, timeout=60)
    assert done.returncode == 1
    trace = tmp_path / "holder-error.txt"
    assert "LookupError: planted" in trace.read_text()
    assert trace.stat().st_mode & 0o777 == 0o600
