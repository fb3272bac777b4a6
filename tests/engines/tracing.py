"""Which addresses a program talks to, by strace."""

import re
from pathlib import Path

_ADDRESS = re.compile(r'sa_family=AF_INET6?,.*?(?:inet_addr\("|inet_pton\(AF_INET6, ")([^"]+)"')


def strace(log: Path) -> list[str]:
    calls = "trace=connect,sendto,sendmsg,sendmmsg"
    return ["strace", "-f", "--seccomp-bpf", "-e", calls, "-o", str(log)]


def contacted(log: Path) -> set[str]:
    return set(_ADDRESS.findall(log.read_text()))
