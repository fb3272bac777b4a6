"""Ports of agents: whose they are, and what becomes of connections when an agent leaves."""

import contextlib
import json
import socket
from pathlib import Path

import pytest

from bullpen.cli.components import look
from bullpen.home.settings import Discovery, Settings
from bullpen.hub.http import guard
from bullpen.hub.tasks.ports import PORT
from tests.hub.http.http import Client, connect
from tests.hub.pen import change_hub
from tests.hub.tasks.desk import made_desk
from tests.hub.tasks.office import OVER, made_office, running, task_agent, write_free
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

NARROW = Settings(discovery=Discovery(port_range="1-1"))
PATIENT = """
import sys
if sys.argv[:1] != ["-c"]:
    from bullpen.component import connection, http_server
    make_config = http_server.server_config
    def patient_config(app):
        config = make_config(app)
        config.timeout_keep_alive = 3600
        return config
    http_server.server_config = patient_config
    connection.HEAD_SECONDS = 3600.0
"""


@pytest.mark.storm
def test_c4_two_homes_side_by_side_do_not_mix(tmp_path: Path) -> None:
    """The same names, one machine: each port is its own home's, and so is each token."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with made_office(tmp_path / "one") as one, made_office(tmp_path / "two") as two:
        sides = [task_agent(office, "amy").at_port for office in (one, two)]
        homes = [side.ask("GET", "/status", token="").json["home_id"] for side in sides]
        assert homes == [one.pen.home.id, two.pen.home.id]
        assert homes[0] != homes[1]
        # Whatever the range is, a home finds its own.
        for office, side in zip((one, two), sides, strict=True):
            found = [each.component for each in look(office.pen.home, NARROW)]
            agents = {(each.name, each.port) for each in found if each.type == "agent"}
            assert agents == {("amy", side.port)}
        for side, other in zip(sides, reversed(sides), strict=True):
            assert side.ask("GET", "/history", token=other.token).status == 401
            assert side.ask("POST", "/shutdown", token=other.token).status == 401
        tasks = [side.give(f"[[say {number}]]") for number, side in enumerate(sides)]
        for number, side in enumerate(sides):
            assert side.wait(tasks[number], *OVER)["output"] == str(number)
            assert side.ask("GET", f"/task/{tasks[1 - number]}").status == 404
            page = side.ask("GET", "/history").json
            assert [item["task_id"] for item in page["items"]] == [tasks[number]]
        # A port that the other home has is not taken over.
        write_free(two, "bob", port=sides[0].port)
        status, error = two.launch("bob")
        assert (status, error["error"]) == (422, "command_failed")  # a command then exits with 1
        assert f"pid {one.pen.pid}" in error["message"]
        assert sides[0].ask("POST", "/shutdown").status == 202
        wait_until(lambda: not running(one, "amy"))
        assert running(two, "amy")
        assert sides[1].state() == "idle"


def test_c4_who_is_in_leaves_with_the_agent(tmp_path: Path) -> None:
    """A connection that was kept open does not reach the next agent of that name. No idle time-out
    of the server ends it."""
    with made_desk(tmp_path) as office:
        change_hub(office.pen, PATIENT)
        side = task_agent(office, "amy").at_port
        headers = {"Authorization": f"Bearer {office.token}"}
        with contextlib.closing(Client(side.port)) as kept, connect(side.port) as silent:
            answer = kept.begin("GET", "/status", headers)
            assert json.loads(answer.read())["state"] == "idle"
            office.pen.stop("amy")
            assert silent.recv(1) == b""
            kept.auto_open = False
            assert kept.sock is None or kept.sock.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            connect(side.port)
        office.start("amy")
        assert side.state() == "idle"


def test_c4_only_loopback_listens(tmp_path: Path) -> None:
    with made_office(tmp_path) as office:
        port = task_agent(office, "amy").at_port.port
        lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
        listening = {line.split()[1] for line in lines if line.split()[3] == "0A"}
        assert [where for where in listening if where.endswith(f":{port:04X}")] == [
            f"0100007F:{port:04X}"
        ]
        if socket.has_ipv6:
            with socket.socket(socket.AF_INET6) as six:
                assert six.connect_ex(("::1", port)) != 0


@pytest.mark.parametrize(
    ("path", "leads_to"), [("/status", "/agents/amy/status"), ("/", "/agents/amy/")]
)
def test_c4_everything_at_a_port_is_below_its_agent(path: str, leads_to: str) -> None:
    scope = {"state": {PORT: "amy"}, "path": path, "raw_path": path.encode()}
    guard._lead_to_agent(scope)
    assert (scope["path"], scope["raw_path"]) == (leads_to, leads_to.encode())
    elsewhere = {"state": {}, "path": path, "raw_path": path.encode()}
    guard._lead_to_agent(elsewhere)
    assert elsewhere["path"] == path
