"""Names and ids that want to be paths: in every place of the API that takes one."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from bullpen.errors import BullpenError
from bullpen.home import workdirs
from bullpen.home.paths import Home
from bullpen.home.settings import Settings
from tests.hub.http.agents import token_of
from tests.hub.http.http import ask, raw
from tests.hub.tasks.desk import Desk
from tests.hub.tasks.office import OVER, made_office, seated, task_agent
from tests.listing import list_files

pytestmark = pytest.mark.slow

NO_TASK = "t-000000000000"
ODD = {
    "up": "..",
    "up and away": "../../../../etc/passwd",
    "here": ".",
    "hidden": ".git",
    "absolute": "/etc/passwd",
    "of the home": "/proc/self/root",
    "NUL": "amy\0",
    "NUL in front": "\0../amy",
    "line break": "amy\n",
    "carriage return": "a\r\nX: y",
    "encoded": "%2e%2e%2fbob",
    "encoded twice": "%252e%252e%252fbob",
    "back": "..\\bob",
    "long": "a" * 5000,
    "longer than a name": "a" * 300,
    "fullwidth dots": "\uff0e\uff0e\uff0fbob",
    "leaders": "\u2024\u2024/bob",
    "a slash of another kind": "\u2215etc\u2215passwd",
    "fraction": "..\u2044bob",
    "right to left": "\u202eyma",
    "zero width": "amy\u200b",
    "look-alike": "\u0430my",
    "combining": "a\u0301my",
    "capital": "AMY\u212a",
    "tilde": "~",
    "of a person": "~root/x",
    "option": "--help",
    "shell": "$(touch x)",
    "tick": "`touch x`",
    "semicolon": "x;touch y",
    "sql": "' OR 1=1 --",
    "glob": "*",
    "empty": "",
    "blank": " ",
    "escape": "\x1b[2J",
    "reserved": "root",
}
PATHS = (
    *("/agents/{}/status", "/agents/{}/config", "/agents/{}/tasks", "/agents/{}/history"),
    *(f"/agents/{{}}/task/{NO_TASK}", f"/agents/{{}}/task/{NO_TASK}/events", "/agents/{}"),
    *("/task/{}", "/task/{}/debug", "/task/{}/events", "/history/{}", "/agents/amy/task/{}"),
    *("/agents/amy/task/{}/debug", "/agents/amy/history/{}", "/agents/amy/task/{}/events"),
)
POSTS = (
    *("/agents/{}/task", "/agents/{}/shutdown", "/task/{}/cancel", "/task/{}/continue"),
    *("/task/{}/end", "/agents/amy/task/{}/cancel", "/agents/{}/restart"),
)
# What may change in a home that is left alone.
MOVING = ("state.db", "state.db-wal", "state.db-shm")


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with made_office(tmp_path_factory.mktemp("office")) as made:
        task_agent(made, "amy")
        task_agent(made, "bob")
        made.done(made.give("bob", "[[say a secret of bob's]]"))
        repo = made.pen.root.parent / "repo"
        name = ("-c", "user.name=Tess", "-c", "user.email=tess@example.com")
        for words in (("init", "-b", "main"), ("commit", "--allow-empty", "-m", "x")):
            repo.mkdir(exist_ok=True)
            subprocess.run(["git", *name, words[0], "-q", *words[1:]], cwd=repo, check=True)
        yield made


@pytest.fixture(params=ODD)
def odd(request: pytest.FixtureRequest) -> str:
    return ODD[request.param]


def around(office: Desk) -> set[str]:
    """Every path in the home, beside it, and where the tests are."""
    roots = (office.pen.root.parent, office.claude.root)
    found = set()
    for root in roots:
        for directory, folders, files in os.walk(root):
            found |= {f"{directory}/{name}" for name in (*folders, *files) if name not in MOVING}
    # Whoever looks at a repository takes a lock there first.
    return {path for path in found if "/repo/.git/bullpen" not in path}


@pytest.fixture(autouse=True)
def _untouched(office: Desk) -> Iterator[None]:
    before = around(office)
    yield
    current = office.status("amy")["current_task"]
    assert current is None, current
    assert around(office) == before


def fine(status: int) -> bool:
    return status in (400, 403, 404)


@pytest.mark.few(4)
def test_t9_a_path_is_no_path(office: Desk, odd: str) -> None:
    """As it is, percent-encoded, and with its slashes left alone."""
    port, token = seated(office, "amy", 1).below_hub.port, office.token
    for method, paths in (("GET", PATHS), ("POST", POSTS)):
        for path in paths:
            for shown in {quote(odd, safe=""), quote(odd, safe="/"), quote(odd, safe="/.%")}:
                if odd == "." and "/agents/amy/" in path:
                    continue
                answer = ask(port, method, path.format(shown), token=token)
                if odd == "" and path == "/agents/{}":
                    continue
                assert fine(answer.status), (path, shown, answer)
                assert b"secret of bob" not in answer.body


@pytest.mark.few(12)
def test_t9_a_path_is_no_path_at_a_port(office: Desk, odd: str) -> None:
    side = seated(office, "amy", office.status("amy")["config"]["port"]).at_port
    for path in ("/task/{}", "/task/{}/debug", "/history/{}", "/task/{}/events"):
        for shown in {quote(odd, safe=""), quote(odd, safe="/")}:
            answer = side.ask("GET", path.format(shown))
            assert fine(answer.status), (path, shown, answer)


@pytest.mark.few(30)
@pytest.mark.parametrize("field", ["session_id", "project", "workdir", "repo", "request", "model"])
def test_t1_a_field_of_a_task_is_no_path(office: Desk, field: str, odd: str) -> None:
    body: dict[str, Any] = {"prompt": "x", field: odd}
    if field == "repo":
        body["worktree"] = "fine"
    if field == "model" and not (set(odd) & set(" \0\n\r") or odd.startswith("-")):
        return  # one word, given to the engine as such; none is the default
    if field == "workdir" and odd == "/proc/self/root":
        body[field] = "/proc/self/root/etc"
    for path in ("/agents/amy/task", "/tasks"):
        status, answer = office.ask("POST", path, body)
        if field == "repo" and status == 201:  # looked at when the task begins
            assert office.over(answer["task_id"])["error"]["type"] == "setup_failed"
            office.wait_ready("amy")
        else:
            assert fine(status), (path, answer)


def test_t1_the_name_of_a_project_that_is_told_along_is_only_told(office: Desk, odd: str) -> None:
    """It names nothing; what it may not be is empty or cut off by a NUL."""
    if "\0" not in odd and 0 < len(odd) <= 200:
        return
    body = {"prompt": "x", "project": {"name": odd, "prompt": ""}}
    assert office.ask("POST", "/agents/amy/task", body)[0] == 400


@pytest.mark.few(12)
def test_b5_the_name_of_an_agent_is_no_path(office: Desk, odd: str) -> None:
    for fields in ({}, {"role": "amy"}):
        status, answer = office.launch(odd, **fields)
        assert fine(status), (fields, answer)


@pytest.mark.parametrize("role", ["..", "../../etc/passwd", "root", "a" * 300])
def test_b5_the_role_of_an_agent_is_no_path(office: Desk, role: str) -> None:
    status, answer = office.launch("carl", role=role)
    assert "carl" not in office.pen.agents()
    assert fine(status), answer


def test_b5_the_name_of_a_component_is_no_path(office: Desk, odd: str) -> None:
    about = {"kind": "view", "url": "http://127.0.0.1:1", "pid": os.getpid(), "version": "1"}
    if odd != "root":  # no agent's name
        assert fine(office.ask("POST", "/components", {"name": odd, **about})[0])
    assert fine(office.ask("DELETE", f"/components/{quote(odd, safe='')}")[0]) or odd == ""


def test_c5_a_role_is_no_path(office: Desk, odd: str) -> None:
    file = office.pen.root / "agents" / "amy.yaml"
    before = file.read_bytes()
    for fields in ({"role": odd}, {"role": "amy", "port": odd}, {"role": "amy", odd: 1}):
        status, answer = office.ask("PUT", "/agents/amy/config", fields)
        assert fine(status), answer
    assert file.read_bytes() == before


@pytest.mark.few(6)
def test_t10_filters_are_only_looked_for(office: Desk, odd: str) -> None:
    for name in ("session", "text", "state"):
        target = f"/agents/amy/history?{name}={quote(odd, safe='')}"
        status, answer = office.ask("GET", target)
        # Tasks of other tests may well have a blank in their text.
        items = [
            item for item in answer.get("items", []) if name != "text" or odd not in said(item)
        ]
        assert status == 400 or items == [] or odd == ""
        assert "secret of bob" not in str(answer)


def said(item: dict[str, Any]) -> str:
    return "".join(map(str, item.values()))


# ── directories that are there ──


def test_t1_a_directory_has_to_be_one_where_tasks_may_work(office: Desk) -> None:
    link = office.claude.root / "link-out"
    link_up = office.pen.root.parent / "link-up"
    link.symlink_to("/etc")
    link_up.symlink_to("/etc")
    home = office.pen.root
    try:
        for place in (
            *("/", "/etc", "/root", "/proc/self/cwd", str(link), str(link_up), str(home)),
            *(str(home / "sessions"), str(home / "credentials"), str(home / "sessions" / "bob")),
            *(f"{home.parent}/../../etc", f"{home}/projects/../credentials", f"{link_up}/ssl"),
            *(str(home / "projects"), str(home / "worktrees"), "relative", "~", "~/../.."),
            *(str(home / "state.db"), f"{home.parent}/nowhere", f"{home.parent}/person\0"),
        ):
            for body in ({"workdir": place}, {"repo": place, "worktree": "fine"}):
                if "repo" in body and place in (str(home), str(home.parent)):
                    continue
                status, answer = office.ask("POST", "/agents/amy/task", {"prompt": "x", **body})
                if "workdir" in body:
                    assert fine(status), (place, answer)
                elif status == 201:
                    found = office.over(answer["task_id"])
                    assert found["error"]["type"] == "setup_failed", (place, found)
                    _forget(office, answer["task_id"])
    finally:
        link.unlink()
        link_up.unlink()


def _forget(office: Desk, task: str) -> None:
    """What a task that was taken leaves in the home is its own business."""
    office.wait_ready("amy")
    assert office.task(task)["state"] in OVER


def test_t1_without_its_check_a_task_would_work_anywhere(
    monkeypatch: pytest.MonkeyPatch, office: Desk
) -> None:
    """The same question to the code, with the roots taken away."""
    home, settings = office.pen.home, _settings()
    place = Path("/etc")
    with pytest.raises(Exception, match="under no directory"):
        workdirs.checked_directory(home, settings, Path("/nonexistent"), str(place))
    monkeypatch.setattr(workdirs, "allowed_roots", lambda *_: [Path("/")])
    found = workdirs.checked_directory(home, settings, Path("/nonexistent"), str(place))
    assert found == place


@pytest.mark.parametrize("name", [".ssh", ".config/gh", ".ssh/keys"])
def test_x5_with_a_home_in_the_home_directory_no_task_works_among_keys_and_logins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    person = tmp_path / "person"
    home, keys, project = Home(person / ".bullpen"), person / name, person / "src/.hidden"
    inside = (home.projects / "shop", home.worktrees / "amy")
    for directory in (*inside, keys, project):
        directory.mkdir(parents=True)
    (person / "link").symlink_to(keys)

    def check(directory: Path, *allowed: str) -> Path:
        settings = Settings(workdirs=allowed)
        return workdirs.checked_directory(home, settings, person, str(directory))

    for path, roots in ((keys, ()), (person / "link", ()), (keys, ("~",))):
        with pytest.raises(BullpenError, match="what is theirs or secret") as refused:
            check(path, *roots)
        assert "workdirs" in refused.value.hint
    assert check(keys, f"~/{name}") == keys, "what the person names is the person's word"
    assert check(project) == project
    assert [check(each) for each in inside] == list(inside)
    monkeypatch.setattr(workdirs, "_find_hidden", lambda *_: None)
    assert check(person / "link") == keys, "without the refusal it would be taken"


def _settings() -> Settings:
    return Settings()


BRANCHES = (
    *("..", "../x", "a/../../x", "/x", "x/", "a//b", ".x", "x.lock", "-x", "--force", "x\0y"),
    *("x y", "x~1", "x^", "x:y", "@{u}", "x\ny", "\u202ex", "\uff0e\uff0e/x", "x" * 300, "", "@"),
    *("HEAD", "refs/heads/x/../..", "$(touch x)", "x;touch y", "root", "a/.git/x", ".git"),
)


@pytest.mark.parametrize("branch", BRANCHES)
def test_t1_a_branch_is_no_path(office: Desk, branch: str) -> None:
    """Refused at once, or by git when the worktree is made; nothing is left of it."""
    repo = office.pen.root.parent / "repo"
    trees = set(list_files(office.pen.root / "worktrees"))
    body = {"prompt": "[[say hi]]", "repo": str(repo), "worktree": branch}
    status, answer = office.ask("POST", "/agents/amy/task", body)
    if status == 201:
        found = office.over(answer["task_id"])
        office.wait_ready("amy")
        assert found["state"] == "failed", found
        assert found["error"]["type"] == "setup_failed"
    else:
        assert fine(status), answer
    made = set(list_files(office.pen.root / "worktrees")) - trees
    assert not [path for path in made if path.is_file()], made


# ── an agent among agents ──


def test_b6_an_agent_reads_its_own_tasks_and_no_others(office: Desk) -> None:
    port = seated(office, "amy", 1).below_hub.port
    amy, bob = (token_of(office.pen.home, name) for name in ("amy", "bob"))
    theirs = office.ask("GET", "/agents/bob/history")[1]["items"][0]["task_id"]
    for token, status in ((bob, 200), (amy, 403)):
        for path in (f"task/{theirs}", f"task/{theirs}/debug", f"history/{theirs}", "history"):
            assert ask(port, "GET", f"/agents/bob/{path}", token=token).status == status
    # Under its own name it is not there, and without a name it is the owner's.
    for path in (f"/agents/amy/task/{theirs}", f"/agents/amy/history/{theirs}"):
        answer = ask(port, "GET", path, token=amy)
        assert answer.status == 404
        assert b"secret" not in answer.body
    for path in (f"/task/{theirs}", f"/history/{theirs}", "/history", "/tasks", "/projects"):
        assert ask(port, "GET", path, token=bob).status == 403
    for path in ("task", "shutdown", f"task/{theirs}/cancel", f"task/{theirs}/end"):
        answer = ask(port, "POST", f"/agents/bob/{path}", body={"prompt": "x"}, token=bob)
        assert answer.status == 403
    assert ask(port, "PUT", "/agents/bob/config", body={"role": "bob"}, token=bob).status == 403
    assert ask(port, "POST", "/tasks", body={"prompt": "x"}, token=bob).status == 403


def test_b6_at_anothers_port_an_agent_is_nobody(office: Desk) -> None:
    side = seated(office, "bob", office.status("bob")["config"]["port"]).at_port
    amy = token_of(office.pen.home, "amy")
    assert "pid" not in side.ask("GET", "/status", token=amy).json
    for path in ("/history", "/tasks", "/config", "/screen"):
        assert side.ask("GET", path, token=amy).status == 403
    assert side.ask("POST", "/task", {"prompt": "x"}, token=amy).status == 403


def test_b5_what_is_not_quite_http_at_a_port(office: Desk) -> None:
    port = office.status("amy")["config"]["port"]
    for data in (b"\x16\x03\x01" + bytes(50), b"GET /status\r\n\r\n", b"hello\r\n\r\n"):
        answer = raw(port, data, timeout=10, one=True)
        assert not answer or int(answer.split(b" ")[1]) in (400, 403)
