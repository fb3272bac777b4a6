"""`<home>/sockets/ssh-agent`: a link to the person's present SSH agent.

Agents outlive a login, so they get the link; each `run` and `attach` points it at the SSH agent of
its shell.
"""

import os
from collections.abc import Mapping

from bullpen.home.paths import Home


def point_ssh_agent(home: Home, env: Mapping[str, str]) -> None:
    """Point the link at that environment's SSH agent; leave it if there is none."""
    target = env.get("SSH_AUTH_SOCK", "")
    link = home.sockets / "ssh-agent"
    if not os.path.isabs(target) or target == str(link):  # noqa: PTH117
        return
    new = link.with_name(f".ssh-agent.{os.urandom(4).hex()}")
    new.symlink_to(target)
    new.replace(link)
