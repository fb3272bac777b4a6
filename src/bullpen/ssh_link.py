"""`<home>/sockets/ssh-agent`: a link to the person's present SSH agent.

Agents live longer than a login; they are given the link, and each `run` and `attach` points it
at the agent of the shell that it was called from.
"""

import os
from collections.abc import Mapping

from bullpen.paths import Home


def point_ssh_agent(home: Home, env: Mapping[str, str]) -> None:
    """Point the link at that environment's SSH agent; leave it if there is none."""
    target = env.get("SSH_AUTH_SOCK", "")
    link = home.sockets / "ssh-agent"
    if not os.path.isabs(target) or target == str(link):  # noqa: PTH117
        return
    beside = link.with_name(f".ssh-agent.{os.urandom(4).hex()}")
    beside.symlink_to(target)
    beside.replace(link)
