"""Every command that README and the pages show is run, in their order, and ends as they say."""

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import Ran
from tests.pages import PAGES, shown_commands
from tests.ports import reserved_port
from tests.shop import Shop, made_shop

pytestmark = pytest.mark.slow

COMMANDS = {path: shown_commands(path.read_text()) for path in PAGES}
NEEDS_SHELL = re.compile(r"[|&;<>$`~]")
MAY_BE_MISSING = ("curl", "jq")
PORT = "9010"  # the one that the page on tasks gives its agent


@pytest.fixture
def shop() -> Iterator[Shop]:
    with made_shop("standin") as made:
        yield made


@pytest.fixture
def port() -> Iterator[str]:
    with reserved_port() as number:
        yield str(number)


@pytest.mark.parametrize(
    "page", [path for path in PAGES if COMMANDS[path]], ids=lambda path: path.stem
)
@pytest.mark.few(2)
def test_every_command_of_a_page_ends_as_it_says(page: Path, shop: Shop, port: str) -> None:
    if page.name != "README.md":  # there it is the first of the commands
        assert shop.bullpen("init").code == 0
    write_agent_file(page, shop, port)
    write_web_config(page, shop, port)
    for shown in COMMANDS[page]:
        if shown.not_run or not has_programs(shown.line):
            continue
        ran = run(shop, shown.line.replace(PORT, port))
        assert (ran.code != 0) == bool(shown.error), (shown, ran)
        assert shown.error in ran.err, (shown, ran)
        shop.wait_still()


def write_agent_file(page: Path, shop: Shop, port: str) -> None:
    """The first file of the page on tasks, where it says that it lies."""
    if page.name == "tasks.md":
        text = re.findall(r"^```yaml\n(.+?)^```", page.read_text(), re.MULTILINE | re.DOTALL)[0]
        file = shop.repository / ".bullpen" / "agents" / "tester.yaml"
        file.write_text(text.replace(PORT, port))


def write_web_config(page: Path, shop: Shop, port: str) -> None:
    """The view of the page about it is at no port that somebody else may have."""
    if page.name == "web.md":
        file = shop.repository / ".bullpen" / "web" / "config.yaml"
        file.parent.mkdir()
        file.write_text(f"bind: 127.0.0.1\nport: {port}\n")


def has_programs(line: str) -> bool:
    return all(shutil.which(name) for name in MAY_BE_MISSING if name in line.split())


def run(shop: Shop, line: str) -> Ran:
    """Ids of tasks and of their sessions are those of the latest one."""
    if re.search(r"\bt-[0-9a-f]{4}|\bSESSION\b", line):
        task = latest_task(shop)
        line = re.sub(r"\bt-[0-9a-f]{4,}", task["task_id"], line)
        line = line.replace("SESSION", task["session_id"])
    if NEEDS_SHELL.search(line) or not line.startswith("bullpen "):
        return shop.shell(line)
    shop.note(line)
    return shop.bullpen(*shlex.split(line, comments=True)[1:])


def latest_task(shop: Shop) -> dict[str, str]:
    tasks = [
        task for verb in ("tasks", "history") for task in shop.bullpen(verb, "--json").json["tasks"]
    ]
    return max(tasks, key=lambda task: task["created_at"])
