"""`bullpen transcript -f`: what is said and done, as it comes."""

import contextlib
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import BULLPEN
from tests.engines.team import made_team
from tests.hub.pen import Pen
from tests.hub.tasks.desk import made_desk
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

SECONDS = 120


class Following:
    """The command, and what it has printed by now."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n")[9:])

    def wait_end(self) -> int:
        code = self.process.wait(SECONDS)
        self._reader.join(SECONDS)
        return code


@contextlib.contextmanager
def following(pen: Pen, name: str) -> Iterator[Following]:
    process = subprocess.Popen(
        [BULLPEN, "transcript", name, "-f"],
        cwd=pen.root,
        env={**pen.env, "BULLPEN_DIR": str(pen.root)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Following(process)
    finally:
        process.kill()
        process.communicate()


def test_e2_the_transcript_of_a_task_is_followed_to_its_end(tmp_path: Path) -> None:
    """By the agent's name or by the task's id; over a death of the hub, and nothing twice."""
    with made_desk(tmp_path) as desk:
        desk.agent(walls=False)
        task = desk.give(
            "amy", '[[say first ; tool Bash {"command":"echo x"} ; hold go ; say last]]'
        )
        with following(desk.pen, "amy") as of_agent, following(desk.pen, task) as of_task:
            for each in (of_agent, of_task):
                wait_until(lambda each=each: "● first" in each.lines)
                assert "● last" not in each.lines
            desk.pen.kill_hub()
            desk.pen.start()
            desk.claude.release("go")
            for each in (of_agent, of_task):
                assert each.wait_end() == 0
                assert each.lines[-1] == "● last"
                assert each.lines.count("● first") == 1
        with following(desk.pen, task) as again:
            assert again.wait_end() == 0
            assert again.lines == of_task.lines


def test_e2_an_agent_is_followed_before_it_has_said_anything_and_after_it_was_cleared(
    tmp_path: Path,
) -> None:
    with made_team(tmp_path, "standin") as team:
        team.role("worker")
        amy = team.run()
        with following(team.pen, "amy") as it:
            for word in ("first", "second"):
                amy.submit(f"[[say {word}]]")
                wait_until(lambda word=word: f"● {word}" in it.lines)
            before = amy.conversation
            amy.submit("/clear")
            wait_until(lambda: amy.conversation != before)
            amy.submit(f"{'longer than before ' * 50}[[say third]]")
            wait_until(lambda: "● third" in it.lines)
            assert team.pen.cli("stop", "amy").code == 0
            assert it.wait_end() == 0
            ends = [(line[0], line.split()[-1]) for line in it.lines if line[:1] in ("›", "●")]
            words = ("first", "second", "third")
            assert ends == [each for word in words for each in (("›", f"{word}]]"), ("●", word))]


def test_e2_what_has_no_transcript_is_not_waited_for(pen: Pen) -> None:
    pen.start()
    pen.run(name="plain")
    ran = pen.cli("transcript", "plain", "-f")
    assert ran.code != 0
    assert "there is no transcript of plain" in ran.err
