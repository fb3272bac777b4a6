"""What `up` starts and `down` stops, and a director that crashes again and again."""

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bullpen.cli import start_component
from bullpen.cli.directors import find_running, start_director
from bullpen.component import supervise
from bullpen.component.supervise import wait_seconds
from bullpen.directors.token import load_token, token_file
from bullpen.home.paths import Home
from bullpen.home.supervised import Supervised, find_supervisor
from tests.commands import Ran
from tests.directors.running import made_scheduler
from tests.hub.http.http import ask
from tests.hub.pen import Pen, made_pen
from tests.hub.tasks.desk import Desk, made_desk
from tests.processes import alive, kill
from tests.waiting import wait_until


def test_waits_between_restarts_double_up_to_five_minutes() -> None:
    assert [wait_seconds(failures) for failures in range(1, 12)] == [
        *(1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300)
    ]


@pytest.mark.parametrize(
    ("above", "text"),
    [
        (Supervised(1, "", child=2), ""),
        (Supervised(1, "", child=2, ending="ended with code 1"), "ended with code 1 · starting"),
        (Supervised(1, "", ending="ended", again_at=105.0), "ended · again in 5 s"),
        (Supervised(1, "", ending="ended", again_at=95.0), "ended · again in 0 s"),
    ],
)
def test_what_a_supervisor_says(above: Supervised, text: str) -> None:
    assert above.text(100.0) == text


@pytest.mark.parametrize(("code", "is_crash"), [("os.kill(os.getpid(), 9)", True), ("1/0", False)])
def test_who_is_killed_before_anybody_saw_it_serve_has_crashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, is_crash: bool
) -> None:
    words = [sys.executable, "-S", "-c", f"import os; {code}"]
    monkeypatch.setattr(supervise, "module_command", lambda *_: words)
    assert supervise.Supervisor(Home(tmp_path), tmp_path, "x")._live().has_served == is_crash


@pytest.fixture
def pen() -> Iterator[Pen]:
    with made_pen() as made:
        made.start()
        yield made


@pytest.mark.storm
def test_a_director_that_cannot_come_back_waits_longer_and_says_so(pen: Pen) -> None:
    with made_scheduler(pen, name="crashing") as director:
        supervisor = find_supervisor(pen.home, "crashing")
        assert supervisor is not None
        director.file.write_text("type: scheduler\nport: nonsense\n")  # it cannot start again
        director.kill()

        row: dict[str, object] = {}

        def has_failed() -> bool:
            rows = json.loads(director.cli("director", "list", "--json").out)["directors"]
            row.update(rows[0])
            return "code 2" in str(row["problem"])

        wait_until(has_failed)
        assert row["state"] == "restarting"
        assert int(str(row["restarts"])) > 1
        assert "ended with code 2 · again in" in str(row["problem"])
        shown: list[dict[str, object]] = []

        def is_waiting() -> bool:
            shown[:] = json.loads(director.cli("list", "--json").out)["directors"]
            return shown[0]["state"] == "restarting"

        wait_until(is_waiting)
        assert (shown[0]["name"], shown[0]["problem"]) == ("crashing", "ended with code 2")
        assert str(shown[0]["since"]) < str(shown[0]["again_at"])
        assert int(str(shown[0]["restarts"])) > 1
        assert "Directors\n  crashing " in director.cli("list").out
        ran = director.cli("director", "start", "crashing")
        assert ran.code == 2
        assert "port" in ran.err
        director.file.write_text("type: scheduler\n")
        # On a busy machine its wait has doubled many times by now.
        wait_until(lambda: find_running(pen.home, "crashing") is not None, 300)
        assert alive(supervisor.pid)
        wait_until(lambda: not is_waiting() and shown[0]["state"] == "idle")
        assert (shown[0]["problem"], shown[0]["again_at"]) == ("", None)


@pytest.mark.storm
def test_a_director_is_stopped_while_it_waits_for_its_restart(pen: Pen) -> None:
    with made_scheduler(pen, name="waiting") as director:
        supervisor = find_supervisor(pen.home, "waiting")
        assert supervisor is not None
        director.file.write_text("type: nonsense\n")
        director.kill()
        wait_until(lambda: (find_supervisor(pen.home, "waiting") or supervisor).child == 0)
        ran = director.cli("director", "stop", "waiting")
        assert (ran.code, ran.out) == (0, "waiting stopped\n")
        assert not alive(supervisor.pid)
        assert find_running(pen.home, "waiting") is None


@pytest.mark.slow
def test_d8_a_start_that_is_broken_off_leaves_nothing_that_runs(
    pen: Pen, monkeypatch: pytest.MonkeyPatch
) -> None:
    (pen.home.directors / "broken.yaml").write_text("type: scheduler\n")
    pids: list[int] = []

    def break_off(home: Home, _noun: str, _pid: int) -> bool:
        """Ctrl-C, when the director serves already."""
        running, supervisor = find_running(home, "broken"), find_supervisor(home, "broken")
        if running is None or supervisor is None:
            return False
        pids.extend((running.pid, supervisor.pid))
        raise KeyboardInterrupt

    monkeypatch.setattr(start_component, "_is_ready", break_off)
    with pytest.raises(KeyboardInterrupt):
        start_director(pen.home, "broken")
    assert [alive(pid) for pid in pids] == [False, False]
    assert find_supervisor(pen.home, "broken") is None
    assert not token_file(pen.home, "broken").exists()


@pytest.mark.storm
def test_d8_two_starts_at_once_are_one(pen: Pen) -> None:
    (pen.home.directors / "twice.yaml").write_text("type: scheduler\n")

    def start(_: int) -> Ran:
        return pen.cli("director", "start", "twice")

    try:
        with ThreadPoolExecutor() as threads:
            first, second = threads.map(start, range(2))
        assert (first.code, second.code) == (0, 0), (first, second)
        outputs = (first.out, second.out)
        assert sorted(out == "twice runs already\n" for out in outputs) == [False, True]
        port = pen.client().get("status")["port"]
        own = load_token(pen.home, "twice")
        assert ask(port, "GET", "/tasks", token=own).status == 200
    finally:
        assert pen.cli("director", "stop", "twice").code == 0


@pytest.mark.storm
def test_kill_all_ends_directors_and_those_above_them(pen: Pen) -> None:
    with made_scheduler(pen, name="doomed") as director:
        supervisor, pid = find_supervisor(pen.home, "doomed"), director.pid
        assert supervisor is not None
        ran = director.cli("kill", "--all")
        assert ran.code == 0, ran
        assert not alive(supervisor.pid)
        assert not alive(pid)
        pen.start()
        assert "gone  its process has ended" in director.cli("list").out


@pytest.mark.storm
def test_h6_what_they_print_as_json(pen: Pen) -> None:
    entry = {"name": "tidy", "cron": "@daily", "prompt": "x", "role": "nobody"}
    with made_scheduler(pen, entry, name="json") as director:

        def keys(*words: str) -> dict[str, object]:
            ran = director.cli(*words, "--json")
            assert ran.code == 0, ran
            found: dict[str, object] = json.loads(ran.out)
            return found

        assert keys("schedule", "run", "tidy").keys() == {"id"}
        assert keys("director", "start", "json") == {"name": "json", "started": False, "pid": None}
        again = keys("director", "restart", "json")
        assert (again["name"], again["started"], again["pid"]) == ("json", True, director.pid)
        row = {"kind": "director", "name": "json"}
        assert keys("up", "json") == {
            "started": [{**row, "result": "runs already", "error": None, "hint": None}]
        }
        assert keys("down") == {"stopped": []}
        assert keys("down", "json") == {"stopped": [{**row, "result": "stopped"}]}
        assert keys("director", "stop", "json") == {"name": "json", "stopped": False}


@pytest.mark.slow
def test_a_director_whose_supervisor_was_killed_gets_another_by_its_start(pen: Pen) -> None:
    with made_scheduler(pen, name="alone") as director:
        first, pid = find_supervisor(pen.home, "alone"), director.pid
        assert first is not None
        kill(first.pid)
        assert director.pid == pid
        assert director.cli("director", "start", "alone").out == "alone runs already\n"
        above = find_supervisor(pen.home, "alone")
        assert above is not None
        assert (above.child, above.pid != first.pid, director.pid) == (pid, True, pid)
        director.kill()

        def is_back() -> bool:
            running = find_running(pen.home, "alone")
            return running is not None and running.pid != pid

        wait_until(is_back)
        again = find_supervisor(pen.home, "alone")
        assert again is not None
        assert (again.pid, again.restarts, again.ending) == (above.pid, 1, "its process has ended")


@pytest.mark.storm
@pytest.mark.parametrize("words", [("director", "stop", "alone"), ("shutdown", "--directors")])
def test_a_director_with_its_second_supervisor_is_stopped(pen: Pen, words: tuple[str, ...]) -> None:
    with made_scheduler(pen, name="alone") as director:
        first, pid = find_supervisor(pen.home, "alone"), director.pid
        assert first is not None
        kill(first.pid)
        assert director.cli("up", "alone").out == "director alone: runs already\n"
        above = find_supervisor(pen.home, "alone")
        assert above is not None
        assert director.cli(*words).code == 0
        wait_until(lambda: not alive(above.pid) and not alive(pid))
        assert find_running(pen.home, "alone") is None


@pytest.mark.storm
def test_a_file_that_is_wrong_is_shown_with_line_also_of_a_director_that_does_not_run(
    pen: Pen,
) -> None:
    with made_scheduler(pen, name="alive") as director:
        quiet = director.cli("list").out
        assert "alive" in quiet
        assert "directors/" not in quiet
        wrong = pen.home.directors / "wrong.yaml"
        wrong.write_text("type: scheduler\nport: nonsense\nx: 1\n")
        (pen.home.directors / "Loud.yaml").write_text("type: scheduler\n")
        (pen.home.directors / "fine.yaml").write_text("type: scheduler\n")
        shown = director.cli("list").out
        about = 'directors/wrong.yaml:2: port "nonsense" is no whole number'
        assert f"\n{about} · and 1 more · bullpen validate directors/wrong.yaml\n" in shown
        assert "\ndirectors/Loud.yaml:1: name director name 'Loud' is not allowed" in shown
        assert "fine" not in shown  # it is right, and nobody has started it
        rows = json.loads(director.cli("list", "--json").out)["directors"]
        assert {row["name"]: row["state"] for row in rows} == {
            "Loud": "stopped",
            "alive": "idle",
            "wrong": "stopped",
        }
        assert str(rows[2]["file_problem"]).startswith(about)
        listed = director.cli("director", "list").out
        assert f'wrong: {wrong}:2 port "nonsense" is no whole number' in listed

        wrong.write_text("type: scheduler\n")
        director.file.write_text("type: scheduler\nport: much\n")  # while it runs
        shown = director.cli("list").out
        assert "wrong" not in shown
        assert 'directors/alive.yaml:2: port "much" is no whole number' in shown
        director.file.write_text("type: scheduler\n")
        (pen.home.agents / "new.yaml").write_text("role: x\nport: 9199\n")
        director.file.write_text("type: scheduler\nport: 9199\n")
        assert (
            "directors/alive.yaml:2: port 9199 is the port of agents/new"
            in director.cli("list").out
        )
        (pen.home.agents / "new.yaml").unlink()  # another file makes it right again
        assert "alive.yaml" not in director.cli("list").out


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with made_desk(tmp_path) as made:
        made.pen.start()
        yield made


@pytest.mark.slow
def test_up_starts_what_says_autostart_and_down_stops_it(desk: Desk) -> None:
    pen = desk.pen
    desk.role("amy", sandbox={"enabled": False})
    desk.write_file("amy", autostart=True)
    desk.write_file("bob", role="amy")
    for name, line in (("auto", "autostart: true\n"), ("manual", "")):
        text = f"type: scheduler\nport: {pen.free_port()}\n{line}"
        (pen.home.directors / f"{name}.yaml").write_text(text)
    (pen.home.directors / "wrong.yaml").write_text("type: scheduler\nautostart: true\nx: 1\n")
    (pen.home.directors / "torn.yaml").write_text("type: scheduler\nautostart: true\nschedule: [\n")
    (pen.home.directors / "Loud.yaml").write_text("type: scheduler\nautostart: true\n")
    (pen.home.directors / "resting.yaml").write_text("type: scheduler\nx: 1\n")
    (pen.home.agents / "zoe.yaml").write_text("rolle: amy\nautostart: true\n")

    def running() -> set[str]:
        found = {name for name in ("auto", "manual") if find_running(pen.home, name)}
        return found | {name for name, agent in pen.agents().items() if agent["running"]}

    try:
        ran = desk.cli("up")
        assert ran.code == 1  # one of them is wrong
        wrong = pen.home.directors / "wrong.yaml"
        assert f"director wrong: failed: director wrong has 1 error\n  {wrong}:3  x" in ran.out
        assert "  hint: correct it, then: bullpen up wrong\n" in ran.out
        assert f"\n  {pen.home.directors / 'torn.yaml'}:3" in ran.out
        assert (
            "director Loud: failed: director name 'Loud' is not allowed\n  hint: use a-z" in ran.out
        )
        assert f"\n  {pen.home.agents / 'zoe.yaml'}:1  rolle  unknown key" in ran.out
        assert "not started: zoe, Loud, torn, wrong · the others run\n" in ran.out
        assert "resting" not in ran.out  # it is not to be started
        assert "director auto: started" in ran.out
        assert running() == {"amy", "auto"}
        ran = desk.cli("up", "manual", "auto")
        assert (ran.code, ran.out) == (
            0,
            "director auto: runs already\ndirector manual: started\n",
        )
        assert running() == {"amy", "auto", "manual"}
        ran = desk.cli("up", "nobody")
        assert ran.code == 4
        ran = desk.cli("down")
        assert (ran.code, ran.out) == (0, "director auto: stopped\nagent amy: stopped\n")
        wait_until(lambda: running() == {"manual"})  # started by hand
        assert desk.cli("down").out == (
            "nothing with `autostart: true` was running · bullpen down NAME stops one\n"
        )
        ran = desk.cli("down", "manual")
        assert (ran.code, ran.out) == (0, "director manual: stopped\n")
        wait_until(lambda: running() == set())
    finally:
        for name in ("auto", "manual"):
            if (process := find_running(pen.home, name)) is not None:
                supervisor = find_supervisor(pen.home, name)
                if supervisor is not None:
                    kill(supervisor.pid)
                kill(process.pid)
