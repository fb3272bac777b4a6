"""Machines as network namespaces, each with one cable to a switch: cables can be cut."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence

import pytest


class Networks:
    """The namespaces by the names of the machines in them."""

    def __init__(self, servers: Sequence[str], hosts: Sequence[str]) -> None:
        names = (*servers, *hosts)
        self._servers = servers
        tag = f"{os.getpid() % 100000}"
        self._switch = f"bullpen-{tag}-switch"
        self._spaces = {name: f"bullpen-{tag}-{name}" for name in names}
        self._ends = {name: (f"bp{tag}{name}a", f"bp{tag}{name}b") for name in names}
        self.addresses = {name: f"10.99.78.{at}" for at, name in enumerate(names, 1)}

    def make(self, stack: contextlib.ExitStack) -> None:
        for space in (self._switch, *self._spaces.values()):
            made = ip("netns", "add", space)
            if made.returncode:
                pytest.skip(f"no network namespaces here: {made.stderr.strip()}")
            stack.callback(ip, "netns", "del", space)
        made = ip("-n", self._switch, "link", "add", "switch", "type", "bridge")
        if made.returncode:
            pytest.skip(f"no bridge here: {made.stderr.strip()}")
        surely("-n", self._switch, "link", "set", "switch", "up")
        for name, space in self._spaces.items():
            here, there = self._ends[name]
            words = ("type", "veth", "peer", "name", there, "netns", self._switch)
            surely("-n", space, "link", "add", here, *words)
            surely("-n", self._switch, "link", "set", there, "master", "switch", "up")
            surely("-n", space, "addr", "add", f"{self.addresses[name]}/24", "dev", here)
            surely("-n", space, "link", "set", here, "up")
            surely("-n", space, "link", "set", "lo", "up")

    def within(self, name: str) -> list[str]:
        """In front of a command line: it runs on that machine."""
        return ["ip", "netns", "exec", self._spaces[name]]

    def servers_of(self, _host: str) -> list[str]:
        """Where it reaches the servers, which come first: at their own addresses."""
        return [self.addresses[name] for name in self._servers]

    def cut(self, name: str) -> None:
        """That machine reaches nobody, and is told nothing of it."""
        surely("-n", self._switch, "link", "set", self._ends[name][1], "down")

    def heal(self, name: str) -> None:
        surely("-n", self._switch, "link", "set", self._ends[name][1], "up")


def ip(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *words], capture_output=True, text=True, timeout=60, check=False)


def surely(*words: str) -> None:
    done = ip(*words)
    assert done.returncode == 0, (words, done.stderr)


@contextlib.contextmanager
def made_networks(servers: Sequence[str], hosts: Sequence[str]) -> Iterator[Networks]:
    """Skips the test where there can be none."""
    if os.getuid() != 0:
        pytest.skip("only root can make network namespaces")
    if shutil.which("ip") is None:
        pytest.skip("`ip` (iproute2) is not installed")
    with contextlib.ExitStack() as stack:
        networks = Networks(servers, hosts)
        networks.make(stack)
        yield networks
