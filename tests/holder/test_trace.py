"""A holder that dies of a bug says so."""

import subprocess
import sys
from pathlib import Path

# A holder whose loop breaks at once, in a process of its own: `_hold` never returns.
BROKEN = """
import socket, sys
from bullpen.holder import factory
from bullpen.holder.main import Holder
from bullpen.holder.request import parse_request

def broken(self):
    raise LookupError("planted")

Holder.run = broken
session = sys.argv[1]
request = parse_request({"name": "amy", "socket": session + "/s", "session": session,
                         "argv": ["true"], "env": {"PATH": "/bin:/usr/bin"}, "cwd": "/"})
ours, theirs = socket.socketpair()
factory._hold(request, theirs, factory._listen(request.socket))
"""


def test_k1_a_holder_that_dies_of_a_bug_leaves_a_trace(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", BROKEN, tmp_path], check=False, timeout=60)
    assert done.returncode == 1
    trace = tmp_path / "holder-error.txt"
    assert "LookupError: planted" in trace.read_text()
    assert trace.stat().st_mode & 0o777 == 0o600
