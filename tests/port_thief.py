"""Another process, another user's where the test may: it tries to listen on a port of ours."""

import os
import subprocess
import sys

NOBODY = 65534
# Each way on which it could listen is printed. The listener is closed again.
CODE = """
import os, socket, sys
port, user = int(sys.argv[1]), int(sys.argv[2])
if user:
    os.setgroups([]), os.setgid(user), os.setuid(user)
options = {"plain": (), "reuse": (socket.SO_REUSEADDR,), "join": (socket.SO_REUSEPORT,),
           "both": (socket.SO_REUSEADDR, socket.SO_REUSEPORT)}
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"),
                        (socket.AF_INET6, "::")):
    for name, each in options.items():
        try:
            with socket.socket(family) as thief:
                for option in each:
                    thief.setsockopt(socket.SOL_SOCKET, option, 1)
                thief.bind((address, port))
                thief.listen()
                print(name, address)
        except OSError:
            pass
"""


def ways_in(port: int) -> list[str]:
    """How somebody else could listen there now; none, if the port is taken."""
    user = NOBODY if os.getuid() == 0 else 0
    words = [sys.executable, "-I", "-S", "-c", CODE, str(port), str(user)]
    return subprocess.run(
        words, capture_output=True, check=True, text=True, timeout=60
    ).stdout.splitlines()
