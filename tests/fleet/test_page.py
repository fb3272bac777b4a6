"""The page about fleets, run as it stands: each of its commands on the machine that it names."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.commands import BULLPEN
from tests.fleet.machines import SERVER
from tests.hub.pen import Pen, made_pen
from tests.pages import PROJECT, shown_commands
from tests.ports import reserved_port
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

HOSTS = ("laptop", "desk", "big")
LIST = "bullpen list --fleet"
ON = re.compile(r"on (\w+); tests/fleet/test_page.py runs it")


class Desks:
    """The three machines, each with a directory that its person stands in."""

    def __init__(self, pens: dict[str, Pen], port: int) -> None:
        self.pens = pens
        self.port = port
        self.servers: list[subprocess.Popen[bytes]] = []

    def directory(self, host: str) -> Path:
        directory = self.pens[host].root.parent / "person"
        directory.mkdir(exist_ok=True)
        return directory

    def run(self, host: str, line: str) -> str:
        """What it prints. The server stays, and what is copied to a machine is there."""
        line = line.replace("0.0.0.0:4222", f"127.0.0.1:{self.port}")
        line = re.sub(r"(127\.0\.0\.1|laptop):4222", f"127.0.0.1:{self.port}", line)
        words = shlex.split(line)
        here = self.directory(host)
        if words[:3] == [BULLPEN.name, "fleet", "serve"]:
            self.start_server([BULLPEN, *words[1:]], here)
            return ""
        if words[0] == "scp":
            shutil.copy2(here / words[1], self.directory(words[2].removesuffix(":")))
            return ""
        assert words[0] == BULLPEN.name
        ran = self.pens[host].cli(*words[1:], cwd=here)
        assert ran.code == 0, (host, line, ran)
        return ran.out

    def start_server(self, words: Sequence[str | Path], here: Path) -> None:
        log = here / "server.log"
        with log.open("wb") as output:
            self.servers.append(subprocess.Popen(words, cwd=here, stderr=output))
        wait_until(lambda: b"Server is ready" in log.read_bytes())


@pytest.fixture
def desks() -> Iterator[Desks]:
    with reserved_port() as port, made_pen() as one, made_pen() as two, made_pen() as three:
        made = Desks(dict(zip(HOSTS, (one, two, three), strict=True)), port)
        for pen in made.pens.values():
            pen.start()
        yield made
        for server in made.servers:
            server.kill()
            server.wait()


def test_l1_one_machine_becomes_three_as_the_page_says(desks: Desks) -> None:
    shown = shown_commands((PROJECT / "docs" / "fleet.md").read_text())
    assert len(shown) > 15
    printed: dict[str, str] = {}
    for command in shown:
        match = ON.fullmatch(command.not_run)
        assert match is not None, command
        if command.line == LIST:
            wait_until(lambda: {"desk/amy", "big/bob"} <= set(desks.run("laptop", LIST).split()))
        if "--where" in command.line:
            wait_until(lambda: "gpu=yes" in desks.run("laptop", "bullpen fleet status"))
        printed[command.line] = desks.run(match[1], command.line)
    assert "desk/amy" in printed[LIST]
    assert "the server has been told" in printed["bullpen fleet key --revoke big"]
    # The key that was taken back: its machine is out, and says why.
    wait_until(lambda: "Authorization" in desks.run("big", "bullpen fleet status"))
    # Nobody is shown it as one that cannot be reached just now.
    assert "big" not in desks.run("laptop", "bullpen fleet status")


def test_l1_the_server_in_a_container_is_given_what_it_needs(desks: Desks) -> None:
    """Without containers: the directory that is mounted, the words that the program gets."""
    text = re.search(r"```yaml\n(.*?)```", (PROJECT / "docs" / "fleet.md").read_text(), re.DOTALL)
    assert text is not None
    here = desks.directory("laptop")
    service = YAML(typ="safe").load(text[1].replace("${PWD}", str(here)))["services"]["nats"]
    assert service["volumes"] == [f"{here}/fleet:{here}/fleet"]
    desks.run("laptop", "bullpen fleet key laptop --listen 0.0.0.0:4222")
    paths = re.findall(r'"(/[^"]*)"', (here / "fleet" / "nats.conf").read_text())
    assert paths and all(path.startswith(f"{here}/fleet/") for path in paths)
    desks.start_server([SERVER, *service["command"]], here)
    joined = desks.run("laptop", "bullpen fleet join fleet/laptop.json --url nats://laptop:4222")
    assert "laptop has joined the fleet" in joined
