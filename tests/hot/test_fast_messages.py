"""`send` and `inbox` on the hot way: what is asked, byte for byte, and what is left to others."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen import __version__
from bullpen.hot import fast
from tests.commands import BULLPEN, Ran
from tests.standin import SeenRequest, StandIn, answer, says

pytestmark = pytest.mark.slow

Bullpen = Callable[..., Ran]
ID = "m-0123456789ab"
TEXT = "text=1&colour=0&columns=0"
CREATED = answer(b"queued\n", "201 Created")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    path = Path(tempfile.mkdtemp(prefix="bp", dir="/tmp"))
    (path / "sockets").mkdir()
    (path / ".bullpen-dir.txt").write_text(f"v{__version__}\n")
    monkeypatch.setenv("BULLPEN_DIR", str(path))
    monkeypatch.delenv("COLUMNS", raising=False)
    stand_in = StandIn(path / "sockets/hub.sock", says(CREATED))
    yield stand_in
    stand_in.close()
    shutil.rmtree(path)


def run(*words: str, **env: str) -> int | None:
    return fast.run(
        list(words), {**os.environb, **{k.encode(): v.encode() for k, v in env.items()}}
    )


def test_g1_what_send_asks(hub: StandIn, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run("send", f"--id={ID}", "amy", "hello you", BULLPEN_TOKEN="t0") == 0
    assert run("send", f"--id={ID}", "a/b", "--priority", "urgent", "x=y") == 0
    first, second = hub.asked
    assert (first.method, first.target) == ("POST", "/agents/amy/messages?text=1")
    assert first.headers["authorization"] == "Bearer t0"
    assert first.headers["content-type"] == "application/json"
    assert json.loads(first.body) == {"text": "hello you", "id": ID, "priority": "normal"}
    assert second.target == "/agents/a%2Fb/messages?text=1"
    assert json.loads(second.body) == {"text": "x=y", "id": ID, "priority": "urgent"}
    assert capfdbinary.readouterr() == (b"queued\n" * 2, b"")


words_of_a_shell = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(words_of_a_shell)
@pytest.mark.storm
def test_g1_any_text_is_escaped_exactly(hub: StandIn, text: str) -> None:
    before = len(hub.asked)
    code = run("send", f"--id={ID}", "amy", text)
    if not text or text.startswith("-"):
        assert code is None
        assert len(hub.asked) == before
    else:
        assert code == 0
        assert json.loads(hub.asked[-1].body)["text"] == text


ALL = "".join(map(chr, range(1, 0x180))) + '\\"\\u0041\u2028\u2029\ud7ff\ue000\uffff\U0010ffff'


def test_g1_every_control_character_is_escaped_exactly(hub: StandIn) -> None:
    assert run("send", f"--id={ID}", "amy", ALL) == 0
    body = hub.asked[0].body
    assert json.loads(body)["text"] == ALL
    assert not [byte for byte in body if byte < 32]


@pytest.mark.parametrize(
    "words",
    [
        ["send"],
        ["send", "amy"],
        ["send", "amy", "x"],  # without an id it might be sent twice
        ["send", f"--id={ID}"],
        ["send", f"--id={ID}", "amy"],
        ["send", f"--id={ID}", "amy", ""],
        ["send", f"--id={ID}", "amy", "-"],
        ["send", f"--id={ID}", "amy", "-x"],
        ["send", f"--id={ID}", "amy", "--", "-x"],
        ["send", f"--id={ID}", "amy", "two", "words"],
        ["send", f"--id={ID}", "--json", "amy", "x"],
        ["send", f"--id={ID}", "--pod", "p", "x"],
        ["send", f"--id={ID}", "--from", "bob", "amy", "x"],
        ["send", f"--id={ID}", "--priority", "amy"],
        ["send", f"--id={ID}", "amy", "bytes \udcff that are no text"],
        ["inbox", "--json"],
        ["inbox", "--limit", "5"],
        ["inbox", "amy", "bob"],
        ["inbox", ""],
    ],
)
def test_what_is_not_plain_is_left_to_the_command_line(hub: StandIn, words: list[str]) -> None:
    assert run(*words) is None
    assert hub.asked == []


@pytest.mark.parametrize(
    "sent", [answer(b"x"), answer(b"x", "403 No"), answer(b"x", "409 No"), b"", b"?"]
)
def test_any_answer_but_created_is_left_to_the_command_line(
    hub: StandIn, capfdbinary: pytest.CaptureFixture[bytes], sent: bytes
) -> None:
    hub.script = says(sent)
    assert run("send", f"--id={ID}", "amy", "x") is None
    assert capfdbinary.readouterr() == (b"", b"")


@pytest.mark.parametrize(
    ("words", "env", "target"),
    [
        ([], {}, f"/agents/root/messages?{TEXT}"),
        ([], {"BULLPEN_ACTOR": "amy"}, f"/agents/amy/messages?{TEXT}"),
        (["bob"], {"BULLPEN_ACTOR": "amy"}, f"/agents/bob/messages?{TEXT}"),
        (["--full", "bob"], {}, f"/agents/bob/messages?{TEXT}&full=1"),
    ],
)
def test_g1_whose_inbox_is_asked_for(
    hub: StandIn, words: list[str], env: dict[str, str], target: str
) -> None:
    hub.script = says(answer(b"no messages\n"))
    assert run("inbox", *words, **env) == 0
    assert [(asked.method, asked.target) for asked in hub.asked] == [("GET", target)]


def test_g2_an_answer_that_is_lost_is_asked_for_again_with_the_same_id(
    hub: StandIn, bullpen: Bullpen
) -> None:
    """By the whole command line, which begins from the beginning."""
    hub.script = lambda connection, asked: (
        connection.sendall(CREATED) if len(hub.asked) > 2 else None
    )
    assert bullpen("send", "amy", "once") == Ran(0, "queued\n", "")
    bodies = [json.loads(asked.body) for asked in hub.asked]
    assert len(bodies) == 3
    assert {body["text"] for body in bodies} == {"once"}
    assert len({body["id"] for body in bodies}) == 1
    assert bullpen("send", "amy", "once").code == 0
    assert json.loads(hub.asked[-1].body)["id"] != bodies[0]["id"]


def test_g1_of_a_pod_those_that_failed_are_named_and_the_others_get_it(
    hub: StandIn, bullpen: Bullpen
) -> None:
    members = [{"name": name, "running": name != "gone"} for name in ("amy", "bob", "gone", "me")]
    problem = {"error": "conflict", "message": "too many wait", "details": {"hint": "look"}}

    def script(connection: object, asked: SeenRequest) -> None:
        if asked.method == "GET":
            reply = answer(json.dumps({"agents": members}).encode())
        elif "/amy/" in asked.target:
            reply = answer(json.dumps(problem).encode(), "409 Conflict")
        else:
            sent = {"status": "queued", "why": "(bob is idle): at once", "id": ID}
            reply = answer(json.dumps(sent).encode(), "201 Created")
        connection.sendall(reply)  # type: ignore[attr-defined]

    hub.script = script
    done = bullpen("send", "--pod", "csv", "to all", BULLPEN_ACTOR="me")
    assert done == Ran(
        5,
        f"bob: queued (bob is idle): at once · {ID}\n",
        "error: amy: too many wait\nhint:  look\n",
    )
    asked = [asked.target for asked in hub.asked]
    assert asked == ["/agents?pod=csv", "/agents/amy/messages", "/agents/bob/messages"]
    as_json = bullpen("send", "--pod", "csv", "--json", "x", BULLPEN_ACTOR="me")
    assert [one["id"] for one in as_json.json["messages"]] == [ID]
    assert as_json.code == 5


@pytest.mark.parametrize("words", [["send", "amy", "x"], ["inbox"]])
def test_the_hot_verbs_import_nothing_heavy(hub: StandIn, words: list[str]) -> None:
    hub.script = lambda connection, asked: connection.sendall(
        CREATED if asked.method == "POST" else answer(b"x\n")
    )
    env = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}
    done = subprocess.run([BULLPEN, *words], env=env, capture_output=True, check=True)
    loaded = {row.rpartition("|")[2].strip() for row in done.stderr.decode().splitlines()}
    assert "bullpen.hot.fast" in loaded
    assert not loaded & {"click", "json", "socket", "re", "pathlib", "dataclasses", "enum"}
    assert len(hub.asked) == 1
