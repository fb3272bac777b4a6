"""Messages as people and agents see and type them; programs that take lines, and that do not."""

import os
import re
import subprocess
import unicodedata
from typing import Any

import pytest

from bullpen.hub.messages.box import Messages
from bullpen.hub.render.agents import list_text, summary_text
from bullpen.hub.render.messages import inbox_text, sent_text
from bullpen.model.message import TEXT_BYTES, Message, Priority
from bullpen.model.state import Blocked, Exited, Idle, Starting, State, Unknown, Working
from bullpen.model.usage import NOTHING, Totals
from bullpen.terminal.status import status_of
from tests.commands import BULLPEN, Ran
from tests.hub.http.agents import token_of
from tests.hub.live_agents import NOW, live
from tests.hub.pen import Pen
from tests.hub.pods.support import deadly_hub, write_role
from tests.hub.programs import python
from tests.steps import after
from tests.threads import together
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

ID = r"m-[0-9a-f]{12}"
AT = r"(?:\d{4}-\d\d-\d\d )?\d\d:\d\d"  # with the day, if it was midnight meanwhile
# Says each line that it is given, as Python writes it. Without echo: the terminal writes that of
# the next line into the middle of a long answer (2 of 150 times).
SAYS = """
import sys, termios
mode = termios.tcgetattr(0)
mode[3] &= ~termios.ECHO
termios.tcsetattr(0, termios.TCSANOW, mode)
for line in sys.stdin: print('GOT', ascii(line), flush=True)
print('END')
"""
HOSTILE = "\x1b[2J\x1b]0;mine\x07 \x9b31m \u202egnp.exe \u2028 \r \x00"[:-1] + "\x7f\ttail"


def send(pen: Pen, to: str, text: str, **fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = pen.client().post(
        "agents", to, "messages", body={"text": text, **fields}
    )
    return found


def inbox(pen: Pen, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pen.client().get("agents", name, "messages")["messages"]
    return found


def texts(pen: Pen, name: str) -> list[str]:
    return [message["text"] for message in inbox(pen, name)]


def run_lines(pen: Pen, name: str = "liner") -> None:
    write_role(pen, "liner", list(python(SAYS)), "deliver: lines")
    asked = pen.launch(role="liner", name=name)
    pen.client().post("agents", body={**asked, "words": []}, again=True)


def got(pen: Pen, name: str = "liner") -> list[str]:
    return re.findall(r"^GOT '(.*)'", pen.log(name).decode(), re.MULTILINE)


def as_agent(pen: Pen, name: str, *words: str) -> Ran:
    """A command that runs inside of that agent."""
    return pen.cli(*words, BULLPEN_TOKEN=token_of(pen.home, name), BULLPEN_ACTOR=name)


def from_input(pen: Pen, data: bytes, *words: str) -> Ran:
    done = subprocess.run(
        [BULLPEN, "send", *words],
        env={**pen.env, "BULLPEN_DIR": str(pen.root)},
        input=data,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def is_safe(text: str) -> bool:
    """Nothing in it drives a terminal."""
    return not [
        char
        for char in text.replace("\n", "")
        if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    ]


# ── programs that take lines ──


def test_g3_a_line_that_a_terminal_would_cut_says_where_the_rest_is(tidy: Pen) -> None:
    run_lines(tidy, "cut")
    tidy.cli("send", "cut", "word " * 2000)
    tidy.cli("send", "cut", "the next")
    wait_until(lambda: len(got(tidy, "cut")) == 2)
    first, second = got(tidy, "cut")
    assert "bytes, see bullpen inbox --full" in first
    assert len(first) < 4200
    assert second.endswith("the next\\n")


def test_g3_a_program_that_takes_lines_gets_each_as_one(tidy: Pen) -> None:
    run_lines(tidy)
    said = tidy.cli("send", "liner", "two\n\n  lines ☃")
    assert re.fullmatch(rf"queued \(liner takes lines\): at once · {ID}\n", said.out)
    id = said.out.split()[-1]
    wait_until(lambda: bool(got(tidy)))
    assert got(tidy) == [rf"[message from root \xb7 {id}] two lines \u2603\n"]
    # Nobody will show that it arrived.
    wait_until(lambda: inbox(tidy, "liner")[0]["status"] == "sent")
    assert texts(tidy, "liner") == ["two\n\n  lines ☃"]
    assert tidy.ask("GET", "/agents/liner")[1]["messages"] == 0


def test_g3_what_is_written_is_no_key(tidy: Pen) -> None:
    """^C would end the program, ^D its input, ^U the line; ^Z would stop it."""
    run_lines(tidy, "keys")
    send(tidy, "keys", "a\x03b\x04c\x15d\x1ae\x1cf\x7fg\x1b[Ah\x11i\x13j\x16k\x85l")
    send(tidy, "keys", "still there")
    wait_until(lambda: len(got(tidy, "keys")) > 1)
    first, second = got(tidy, "keys")
    assert first.endswith(r"a b c d e f g [Ah i j k l\n")
    assert second.endswith(r"still there\n")
    assert tidy.agents()["keys"]["running"]


def test_g2_a_hub_that_comes_back_types_nothing_again(pen: Pen) -> None:
    run_lines(pen)
    send(pen, "liner", "first")
    wait_until(lambda: len(got(pen)) == 1)
    wait_until(lambda: inbox(pen, "liner")[0]["status"] == "sent")
    pen.kill_hub()
    pen.start()
    send(pen, "liner", "second")
    wait_until(lambda: len(got(pen)) > 1)
    assert [line[-8:] for line in got(pen)] == [r" first\n", r"second\n"]


def test_g2_lines_arrive_in_the_order_of_sending(tidy: Pen) -> None:
    run_lines(tidy, "many")
    for number in range(30):
        send(tidy, "many", f"number {number:02d}")
    # The terminal shows a line before the program has it.
    wait_until(lambda: any("number 29" in line for line in got(tidy, "many")))
    found = [word for line in got(tidy, "many") for word in re.findall(r"number \d\d", line)]
    assert found == [f"number {number:02d}" for number in range(30)]


# ── plain programs ──


def test_g1_what_cannot_be_handed_over_waits_and_everybody_says_so(pen: Pen) -> None:
    pen.run(name="amy")
    said = pen.cli("send", "amy", "hello")
    assert re.fullmatch(rf"queued: amy has to look into its inbox · {ID}\n", said.out)
    wait_until(lambda: bool(pen.ask("GET", "/agents/amy/explain")[1]["messages_wait"]))
    pen.cli("send", "amy", "hello again")
    header, row = [
        line for line in pen.cli("list").out.splitlines() if "MSG" in line or "amy" in line
    ]
    assert header.split()[-1] == "MSG"
    assert row.split()[-1] == "2"
    why = "2 messages wait: its engine takes none: it has to look into its inbox\n"
    assert pen.cli("explain", "amy").out.endswith(f"\n  {why}")
    assert pen.cli("status", "amy").out.endswith(f"\nmessages   {why}")
    assert pen.cli("inbox", "amy").out.endswith(f"\n{why}")
    assert pen.cli("list", "--json").json["agents"][0]["messages"] == 2
    shown = "amy · unknown (it reports no state) · 2 messages wait · "
    wait_until(lambda: shown in status_of(pen.home, "amy").text)  # if the hub says so at once


def test_g2_read_is_what_the_receiver_fetched_itself(pen: Pen) -> None:
    pen.run(name="amy")
    send(pen, "amy", "to be read")
    for _ in range(2):
        assert "queued" in pen.cli("inbox", "amy").out.splitlines()[0].split()
        assert inbox(pen, "amy")[-1]["status"] == "queued"
    line = as_agent(pen, "amy", "inbox").out
    assert re.fullmatch(rf"{ID}  root  {AT}  new  to be read\n", line)
    assert inbox(pen, "amy")[-1]["status"] == "read"
    line = as_agent(pen, "amy", "inbox").out
    assert re.fullmatch(rf"{ID}  root  {AT}  read  {AT}  to be read\n", line)
    assert "MSG" not in pen.cli("list").out
    assert "wait" not in pen.cli("explain", "amy").out
    refused = as_agent(pen, "amy", "inbox", "root")
    assert (refused.code, refused.out) == (6, "")


@pytest.mark.storm
def test_g2_they_outlive_hub_and_agent(pen: Pen) -> None:
    pen.run(name="amy")
    for number in range(3):
        send(pen, "amy", f"number {number}")
    pen.kill_hub()
    pen.start()
    assert texts(pen, "amy") == ["number 0", "number 1", "number 2"]
    pen.stop("amy")
    said = pen.cli("send", "amy", "number 3").out
    assert said.startswith("queued (amy is not running): when it is started again · m-")
    assert pen.cli("restart", "amy").code == 0
    assert pen.ask("GET", "/agents/amy")[1]["messages"] == 4
    as_agent(pen, "amy", "inbox")
    pen.kill_hub()
    pen.start()
    assert pen.ask("GET", "/agents/amy")[1]["messages"] == 0


# ── to the person ──


@pytest.mark.storm
def test_g1_an_agent_reaches_the_person(pen: Pen) -> None:
    pen.run(name="amy")
    said = as_agent(pen, "amy", "send", "root", "I am done")
    assert re.fullmatch(rf"queued: in the person's inbox · {ID}\n", said.out)
    assert pen.cli("list").out.endswith("\n1 message for you · bullpen inbox\n")
    as_agent(pen, "amy", "send", "root", "Really")
    assert pen.cli("list").out.endswith("\n2 messages for you · bullpen inbox\n")
    assert "for you" not in as_agent(pen, "amy", "list").out
    pen.kill_hub()
    pen.start()
    line = rf"{ID}  amy  {AT}  new  "
    assert re.fullmatch(rf"{line}I am done\n{line}Really\n", pen.cli("inbox").out)
    assert "for you" not in pen.cli("list").out
    assert " read " in pen.cli("inbox").out


def test_g1_new_messages_come_in_pages_and_none_is_left_out(pen: Pen) -> None:
    pen.start()
    for number in range(60):
        send(pen, "root", f"number {number}")
    first, more = pen.cli("inbox", "--limit", "1").out.splitlines()
    assert first.endswith("number 0")
    assert more == "59 more new · bullpen inbox"
    *page, more = pen.cli("inbox").out.splitlines()
    assert [line.rpartition(" ")[2] for line in page] == [str(n) for n in range(1, 51)]
    assert more == "9 more new · bullpen inbox"
    assert "9 messages for you" in pen.cli("list").out
    assert "more new" not in pen.cli("inbox").out
    assert "for you" not in pen.cli("list").out
    assert pen.cli("inbox", "--limit", "1").out.endswith("number 59\n")
    assert len(pen.cli("inbox").out.splitlines()) == 50


@pytest.mark.storm
def test_read_twice_at_the_same_time_it_is_read_once(pen: Pen) -> None:
    pen.start()
    for _ in range(5):
        send(pen, "root", "x")
        together(*[lambda: pen.cli("inbox")] * 4)
    send(pen, "root", "the next")
    assert pen.cli("list").out.endswith("1 message for you · bullpen inbox\n")


# ── sending ──


@pytest.mark.storm
def test_g2_the_hub_dies_when_it_has_kept_it_and_it_is_there_once(pen: Pen) -> None:
    pen.run(name="amy")
    pen.kill_hub()
    with deadly_hub(pen, after(Messages.send)):
        said = pen.cli("send", "amy", "once")
    assert said.code == 0
    assert said.err == ""
    assert texts(pen, "amy") == ["once"]


def test_g2_the_same_id_is_the_same_message_and_no_other(pen: Pen) -> None:
    pen.run(name="amy")
    first = pen.cli("send", "amy", "x", "--id", "m-00000000000a")
    again = pen.cli("send", "amy", "x", "--id", "m-00000000000a")
    assert first == again
    assert first.code == 0
    other = pen.cli("send", "amy", "y", "--id", "m-00000000000a")
    assert (other.code, other.out) == (5, "")
    assert texts(pen, "amy") == ["x"]
    assert pen.cli("send", "amy", "y", "--id", "x").code == 2


@pytest.mark.parametrize(
    "data",
    [
        b"a line\n",
        b"\n\n",
        b"no end",
        "\ufeffünï ☃ 🐦\r\n\t\x1b[31m\x7f\u2028 ".encode(),
        b"x" * TEXT_BYTES,
        "☃".encode() * (TEXT_BYTES // 3),
        b"-",
    ],
    ids=["line", "empty lines", "no end", "odd", "largest", "largest of wide ones", "a dash"],
)
def test_g1_standard_input_arrives_byte_for_byte(tidy: Pen, data: bytes) -> None:
    tidy.run(name="amy")
    assert from_input(tidy, data, "amy", "-").code == 0
    assert texts(tidy, "amy")[-1].encode() == data


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "there is nothing to send"),
        (b"x" * (TEXT_BYTES + 1), "a message has at most 256 KiB"),
        ("x☃".encode() * (TEXT_BYTES // 4) + b"xx", "a message has at most 256 KiB"),
        (b"caf\xe9", "standard input is no UTF-8: byte 4"),
        (b"\xed\xa0\x80", "standard input is no UTF-8: byte 1"),  # half a surrogate
        (b"a\0b", "a message cannot hold the character NUL"),
    ],
)
def test_g1_what_is_no_text_or_too_much_is_refused(tidy: Pen, data: bytes, says: str) -> None:
    tidy.run(name="amy")
    before = texts(tidy, "amy")
    done = from_input(tidy, data, "amy", "-")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {says}\n")
    assert texts(tidy, "amy") == before


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"text": ""}, 400),
        ({"text": "x" * (TEXT_BYTES + 1)}, 400),
        ({"text": "☃" * (TEXT_BYTES // 3 + 1)}, 400),
        ({"text": "\ud800"}, 400),
        ({"text": "a\0"}, 400),
        ({"text": 1}, 400),
        ({"text": "x", "priority": "highest"}, 400),
        ({"text": "x", "id": "m-1"}, 400),
        ({"text": "x", "id": "m-00000000000b\n"}, 400),
        ({"text": "x", "to": "bob"}, 400),
        ({}, 400),
        ({"text": "x" * TEXT_BYTES}, 201),
        ({"text": "\ud83d\udc26"}, 201),
        ({"text": HOSTILE, "priority": "interrupt"}, 201),
    ],
)
def test_g1_the_api_takes_text_and_nothing_else(tidy: Pen, body: Any, status: int) -> None:
    tidy.run(name="amy")
    before = len(texts(tidy, "amy"))
    assert tidy.ask("POST", "/agents/amy/messages", body)[0] == status
    assert len(texts(tidy, "amy")) == before + (status == 201)


@pytest.mark.storm
def test_g1_mistakes_are_named(pen: Pen) -> None:
    pen.run(name="amy")
    nobody = pen.cli("send", "amx", "x")
    assert (nobody.code, nobody.out) == (4, "")
    assert nobody.err == "error: no agent called amx · did you mean amy?\nhint:  bullpen list\n"
    form = "bullpen send NAME TEXT · bullpen send --pod POD TEXT"
    for words, missing, hint in (
        ((), "what is sent to whom?", form),
        (("amy",), "no text for amy", 'bullpen send amy "TEXT"'),
        (("--pod", "p"), "no text for pod p", 'bullpen send --pod p "TEXT"'),
    ):
        done = pen.cli("send", *words)
        assert (done.code, done.out) == (2, "")
        assert done.err == f"error: {missing}\nhint:  {hint}\n"
    for words, meant in (
        (("amy", "two", "words"), "amy 'two words'"),
        (("--pod", "p", "two", "words"), "--pod p 'two words'"),
    ):
        done = pen.cli("send", *words)
        assert (done.code, done.out) == (2, "")
        quote = "error: the text ends at 'two', before: words · quote it as a whole"
        assert done.err == f"{quote}\nhint:  bullpen send {meant}\n"
    assert pen.cli("send", "amy", "").err == "error: there is nothing to send\n"
    assert pen.cli("send", "amy", "x", "--priority", "high").code == 2
    odd = subprocess.run(
        [os.fsencode(BULLPEN), b"send", b"amy", b"caf\xe9"],
        env={**pen.env, "BULLPEN_DIR": str(pen.root)},
        capture_output=True,
        check=False,
    )
    assert (odd.returncode, odd.stderr) == (2, b"error: the text is no UTF-8\n")
    assert pen.cli("send", "--", "amy", "-x").code == 0
    assert texts(pen, "amy") == ["-x"]
    assert pen.cli("inbox", "nobody").code == 4


def test_i2_who_writes_is_the_owners_alone_to_say(pen: Pen) -> None:
    pen.run(name="amy")
    pen.run(name="bob")
    assert pen.cli("send", "amy", "x", "--from", "cid").code == 0
    refused = as_agent(pen, "bob", "send", "amy", "x", "--from", "cid")
    assert (refused.code, refused.out) == (6, "")
    assert as_agent(pen, "bob", "send", "amy", "x").code == 0
    assert [message["sender"] for message in inbox(pen, "amy")] == ["cid", "bob"]


def test_g1_to_a_pod_is_to_all_others_of_it_that_run(pen: Pen) -> None:
    for name in ("amy", "bob", "cid"):
        pen.run(name=name, pod="team")
    pen.run(name="dan")
    pen.stop("cid")
    said = as_agent(pen, "amy", "send", "--pod", "team", "to all", "--priority", "urgent")
    assert re.fullmatch(rf"bob: queued bob has to look into its inbox · {ID}\n", said.out)
    assert [texts(pen, name) for name in ("amy", "bob", "cid", "dan")] == [[], ["to all"], [], []]
    sent = pen.cli("send", "--pod", "team", "--json", "again").json["messages"]
    assert [(one["to"], one["sender"], one["status"]) for one in sent] == [
        ("amy", "root", "queued"),
        ("bob", "root", "queued"),
    ]
    assert pen.cli("send", "--pod", "nope", "x").code == 4
    pen.stop("bob")
    alone = as_agent(pen, "amy", "send", "--pod", "team", "x")
    assert (alone.code, alone.err.splitlines()[0]) == (5, "error: nobody else runs in pod team")


# ── printing what others wrote ──


def test_g1_no_message_drives_the_terminal_of_whoever_looks(pen: Pen) -> None:
    pen.run(name="amy")
    for text in (HOSTILE, f"first\n{HOSTILE}\n", "\u202e" * 300):
        send(pen, "amy", text)
        send(pen, "root", text)
    shown = [
        pen.cli(*words)
        for words in (
            *(["inbox", "amy"], ["inbox", "amy", "--full"], ["inbox", "amy", "--json"]),
            *(["inbox", "--full"], ["inbox"], ["list"], ["status", "amy"], ["explain", "amy"]),
            *(["send", "amy", HOSTILE], ["send", "amy", "--json", HOSTILE]),
            ["send", "x\x1b[31m", HOSTILE],
        )
    ]
    assert [one for one in shown if not is_safe(one.out + one.err)] == []
    assert r"\x1b[2J\x1b]0;mine\x07 \x9b31m" in shown[0].out
    assert pen.cli("inbox", "amy", "--json").json["messages"][0]["text"] == HOSTILE


# ── as text, without a hub ──


def message(text: str = "x", priority: Priority = "normal", **fields: Any) -> Message:
    given = {"id": "m-0123456789ab", "sender": "root", "to": "amy", "created": NOW}
    return Message(**{**given, "text": text, "priority": priority, **fields})


@pytest.mark.parametrize(
    ("state", "priority", "says"),
    [
        (Idle(), "normal", "queued (amy is idle): at once"),
        (Idle(limited_until=9e9), "normal", "queued (amy is idle): when its rate limit is reset"),
        (Working(tool="Bash"), "normal", "queued (amy is working): at the end of its turn"),
        (Working(), "urgent", "queued (amy is working): at its next tool, or at the end of its turn"),  # noqa: E501
        (Working(), "interrupt", "queued (amy is working): its turn is ended first"),
        (Blocked(on="question"), "interrupt", "queued (amy is blocked): when it goes on"),
        (Starting(), "normal", "queued (amy is starting): when it is ready"),
        (Unknown(missing="x"), "normal", "queued (amy is unknown): when its state is known"),
        (Exited(code=0), "normal", "queued (amy is not running): when it is started again"),
    ],
)  # fmt: skip
def test_g3_send_says_when_it_will_arrive(state: State, priority: Priority, says: str) -> None:
    said = sent_text(message(priority=priority), live("amy", state), True)
    assert said == f"{says} · m-0123456789ab\n"


@pytest.mark.parametrize("status", ["sent", "delivered", "read"])
def test_g2_a_message_of_before_is_as_far_as_it_is(status: str) -> None:
    said = sent_text(message(**{status: NOW}), live("amy", Working()), True)
    assert said == f"{status} · m-0123456789ab\n"


LONG = [
    message("short"),
    message("a line that is far too long for a terminal of so few columns", sender="researcher"),
    message("☃☃ wide: 日本語日本語日本語日本語日本語日本語日本語日本語日本語"),
    message("two\nlines"),
    message("\x1b" * 100),
    message("e\u0301" * 300),
]


@pytest.mark.parametrize("columns", [0, 40, 80, 100, 200])
def test_g1_a_line_each_within_the_width(columns: int) -> None:
    from bullpen.text import width

    text = inbox_text(LONG, is_own=False, for_owner=True, columns=columns)
    lines = text.splitlines()
    assert len(lines) == len(LONG)
    assert lines[0].endswith("  short")
    assert lines[3].endswith("  two …")
    assert all(line.endswith("…") for line in lines[4:])
    assert is_safe(text)
    assert all(line.startswith("m-0123456789ab") for line in lines)
    if columns:
        assert max(map(width, lines)) <= columns


def test_g1_in_full_it_is_all_there_line_by_line() -> None:
    text = inbox_text(
        [message("two\r\nlines\n\n\tand\x1b[31m"), message("next")],
        is_own=False,
        for_owner=True,
        full=True,
    )
    first, second = re.split(r"\n\n(?=m-)", text)
    head, *rest = first.split("\n")
    assert head.endswith("  queued")
    assert rest == ["  two", "  lines", "", "          and\\x1b[31m"]
    assert second.endswith("\n  next\n")


def test_g1_nothing_is_said_to_be_nothing() -> None:
    assert inbox_text([], is_own=True, for_owner=True) == "no messages\n"


def test_p7_a_column_for_messages_where_some_wait() -> None:
    agents = [live("amy", Idle(), ago=12), live("bob", Idle(), ago=40)]
    text = list_text(agents, {}, waiting={"bob": 3, "root": 1}, colour=False, now=NOW)
    assert text == (
        "AGENT  ROLE     STATE  IDLE  MSG\n"
        "amy    command  idle   12s\n"
        "bob    command  idle   40s   3\n"
    )
    nobody = list_text([], {}, unread=2, approvals=1, colour=False, now=NOW)
    assert nobody.endswith(
        "\n1 approval waits · bullpen approvals\n2 messages for you · bullpen inbox\n"
    )


@pytest.mark.parametrize(
    ("used", "waiting", "says"),
    [
        (NOTHING, 0, ""),
        (NOTHING, 1, "1 message waits"),
        (Totals(input=41_000, output=200, usd=0.38), 0, "41.2k tokens · $0.38"),
        (Totals(usd=0.001), 2, "<$0.01 · 2 messages wait"),
    ],
)
def test_a2_the_title_says_what_it_used_and_what_waits(
    used: Totals, waiting: int, says: str
) -> None:
    assert summary_text(used, waiting) == says
