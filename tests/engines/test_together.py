"""Many real Claude Codes at once, and what they connect to."""

import re
import shutil
from pathlib import Path

import pytest

from tests.engines.fake_model import INPUT_TOKENS, OUTPUT_TOKENS
from tests.engines.team import Team
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

CALLS = " ; ".join(f'tool Bash {{"command":"echo {word}"}}' for word in ("one", "two", "three"))


@pytest.mark.storm
@pytest.mark.parametrize("many", [2, pytest.param(10, marks=pytest.mark.storm)])
def test_many_at_once_each_with_three_tool_calls(team: Team, many: int) -> None:
    names = [f"a{number}" for number in range(many)]
    team.role("worker", permissions={"allow": ["Bash(echo:*)"]})
    agents = [team.run(name=name, prompt=f"[[{CALLS} ; hold {name} ; say over]]") for name in names]
    for agent in agents:
        team.claude.model.wait_held(agent.name, seconds=120)
        agent.wait("working (thinking)")
        for hook in ("PreToolUse", "PostToolUse"):
            wait_until(lambda: agent.hooks().count(hook) == 3)  # noqa: B023
    for agent in agents:
        team.claude.release(agent.name)
    for agent in agents:
        agent.wait_said("over")

    turns = len(team.claude.model.turns)
    assert turns == 4 * many
    wanted = (INPUT_TOKENS * 4, OUTPUT_TOKENS * 4, 4, 3)

    def counted() -> bool:
        rows = team.pen.client().get("usage", by="agent")["rows"]
        used = {row["name"]: row["used"] for row in rows}
        fields = ("input", "output", "requests", "tool_calls")
        return set(used) == set(names) and all(
            tuple(each[field] for field in fields) == wanted and each["usd"] > 0
            for each in used.values()
        )

    wait_until(counted, 60)


CONNECT = re.compile(r"connect\(\d+, \{sa_family=(AF_\w+)(?:, sin6?_port=htons\((\d+)\))?(.*)")


def foreign(trace: str) -> list[str]:
    """The connects that leave this machine, or ask a name server for the way."""
    found = []
    for line in trace.splitlines():
        match = CONNECT.search(line)
        if match and match[1] not in ("AF_UNIX", "AF_UNSPEC", "AF_NETLINK"):
            is_own = '"127.0.0.1"' in match[3] or '"::1"' in match[3]
            if not is_own or match[2] == "53":
                found.append(line)
    return found


@pytest.mark.storm
def test_only_loopback_is_contacted(team: Team, tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    trace = tmp_path / "trace"
    program = tmp_path / "traced"
    program.write_text(
        f"#!/bin/sh\nexec strace -f -qq -e trace=connect,sendto -e signal=none -o {trace}"
        f' {team.claude.program} "$@"\n'
    )
    program.chmod(0o755)
    team.pen.env["BULLPEN_CLAUDE_BIN"] = str(program)
    team.role("worker", permissions={"allow": ["Bash(echo:*)"]})
    amy = team.run(prompt=f"[[{CALLS} ; say over]]")
    amy.wait_said("over")
    team.pen.stop("amy", 20)
    text = trace.read_text()
    assert CONNECT.search(text), "nothing was traced"
    assert foreign(text) == []


@pytest.mark.parametrize(
    "line",
    [
        '1 connect(3, {sa_family=AF_INET, sin_port=htons(443), sin_addr=inet_addr("1.2.3.4")}',
        '1 connect(3, {sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("127.0.0.1")}',
        '1 connect(3, {sa_family=AF_INET6, sin6_port=htons(443), inet_pton(AF_INET6, "2a::1", x)',
    ],
)
def test_what_would_be_found(line: str) -> None:
    assert foreign(line) == [line]
    own = '1 connect(3, {sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr("127.0.0.1")})'
    assert foreign(own) == []
