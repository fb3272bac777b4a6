"""The log: JSON lines, rotated, private, without credentials, and never in the way."""

import asyncio
import itertools
import json
import logging
import re
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bullpen import clock
from bullpen.component import logs
from bullpen.component.redact import READ_CHARACTERS, REDACTED, Redactor
from tests.waiting import wait_until

log = logging.getLogger("bullpen.test")


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A configured log; the root logger is as before after it."""
    root = logging.getLogger()
    before = root.level
    handler = logs.configure(tmp_path / "hub.log", "hub", "DEBUG", ["the owner's own token"])
    yield handler.path
    root.removeHandler(handler)
    handler.close()
    root.setLevel(before)


def lines(path: Path) -> list[dict[str, Any]]:
    """Without what asyncio says of tasks of earlier tests, whenever they are collected."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in found if line.get("logger") != "asyncio"]


def last(path: Path) -> dict[str, Any]:
    return lines(path)[-1]


def test_b9_a_line_has_time_level_component_message_and_fields(path: Path) -> None:
    log.warning("agent %s is %s", "amy", "lost", extra={"agent": "amy", "pids": [1, None, 2.5]})
    [line] = lines(path)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "level": "warning",
        "component": "hub",
        "logger": "bullpen.test",
        "message": "agent amy is lost",
        "agent": "amy",
        "pids": [1, None, 2.5],
    }


def test_b9_timestamp_is_utc_with_milliseconds(path: Path) -> None:
    log.info("now")
    text = last(path)["timestamp"]
    assert len(text) == len("2026-11-16T01:02:03.456Z")
    assert abs(datetime.fromisoformat(text) - clock.now()) < timedelta(seconds=60)


def test_b9_level_is_respected_and_a_second_configuration_replaces_the_first(
    path: Path, tmp_path: Path
) -> None:
    second = logs.configure(tmp_path / "second.log", "view", "WARNING")
    log.info("quiet")
    log.error("loud")
    assert [line["message"] for line in lines(second.path)] == ["loud"]
    assert lines(second.path)[0]["component"] == "view"
    assert not path.exists()
    logging.getLogger().removeHandler(second)
    second.close()


def test_b9_exceptions_are_a_field(path: Path) -> None:
    try:
        raise KeyError("the owner's own token")
    except KeyError:
        log.exception("it broke", stack_info=True)
    line = last(path)
    assert line["message"] == "it broke"
    assert line["exception"].startswith("Traceback (most recent call last):\n")
    # As it is in the source line, and quoted as Python shows it.
    assert f'raise KeyError("{REDACTED}")\n' in line["exception"]
    assert line["exception"].endswith(f'\nKeyError: "{REDACTED}"\n')
    assert "own token" not in path.read_text()
    assert "test_logs.py" in line["stack"]


def test_b9_odd_fields_are_logged_somehow(path: Path) -> None:
    loop: list[object] = []
    loop.append(loop)
    fields = {"level": "x", "path": Path("/x"), "raw": b"\xff", "nan": float("nan"), "loop": loop}
    log.info("odd", extra={**fields, "big": 1 << 80, "set": {1}, "k": {1: "\ud800"}})
    line = last(path)
    assert (line["level"], line["level_"]) == ("info", "x")
    assert (line["path"], line["raw"], line["nan"]) == ("/x", "\\xff", "nan")
    assert (line["big"], line["set"], line["k"]) == (str(1 << 80), [1], {"1": "\ud800"})


def test_b9_line_breaks_in_a_message_stay_in_its_line(path: Path) -> None:
    log.info('one\ntwo\r\n{"level": "error"}\u2028')
    assert [line["message"] for line in lines(path)] == ['one\ntwo\r\n{"level": "error"}\u2028']


SECRET = "Zq9_secret-part0123456789abcdefXYZ"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"
PEM = (
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEAx1\nq9zzzzzzzz==\n"
    "-----END RSA PRIVATE KEY-----"
)
SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
CREDENTIALS = {
    # kind: (text around {}, the part that must not be seen)
    "authorization": ("Authorization: Bearer {}", SECRET),
    "authorization basic": ("authorization: Basic {}", "dXNlcjpwYXNzd29yZA=="),
    "authorization in a dict": ("{{'authorization': 'Bearer {}'}}", SECRET),
    "authorization in pairs": ("[(b'authorization', b'Basic {}')]", "dXNlcjpwYXNz"),
    "authorization in JSON in JSON": ('{{\\"Authorization\\": \\"token {}\\"}}', SECRET),
    "bearer": ("sent bearer {} to it", SECRET),
    "cookie": ("Set-Cookie: session={}; Path=/", "abc123def456"),
    "x-api-key": ("x-api-key: {}", "short1"),
    "bullpen token": ("BULLPEN_TOKEN={} claude -p", "short"),
    "bullpen token in a dict": ("{{'BULLPEN_TOKEN': '{}'}}", "short"),
    "quoted variable": ("DB_PASSWORD='{}' psql", "with some spaces"),
    "query": ("GET /x?access_token={}&a=b", "abcdef"),
    "password": ('"password": "{}"', "correct horse battery"),
    "anthropic key": ("key {}", "sk-ant-api03-" + "aB3_-" * 18 + "AA"),
    "anthropic oauth": ("{}", "sk-ant-oat01-" + "aB3_-" * 18),
    "openai": ("x={}.", "sk-" + "aB3" * 16),
    "openai project": ("({})", "sk-proj-" + "aB3_-" * 20),
    "google": ("url?key={}", "AIza" + "SyB-_" * 7),
    "google oauth": ("{}", "ya29.a0AfH6SMB" + "x" * 60),
    "github ghp": ("{}", "ghp_" + "a1B2" * 9),
    "github gho": ("{}", "gho_" + "a1B2" * 9),
    "github ghu": ("{}", "ghu_" + "a1B2" * 9),
    "github ghs": ("{}", "ghs_" + "a1B2" * 9),
    "github pat": ("{}", "github_pat_11ABC" + "d" * 20 + "_" + "e" * 40),
    "gitlab": ("{}", "glpat-" + "aB3_-" * 4),
    "gitlab routable": ("{}", "glpat-" + "aB3_" * 7 + ".01.0w1abcdef"),
    "slack bot": ("{}", "xoxb-123456789012-1234567890123-abcdefGHIJKL"),
    "slack user": ("{}", "xoxp-12-34-56-abcdef"),
    "slack app": ("{}", "xapp-1-A012-34-abcdef"),
    "slack webhook": ("https://hooks.slack.com/services/{}", "T00000000/B0000/XXXXXXXX"),
    "telegram": (
        "https://api.telegram.org/bot{}/getMe",
        "123456789:" + "AAE_-xyz1" * 3 + "12345678",
    ),
    "telegram ten digits": ("bot {}", "1234567890:" + "B" * 35),
    "aws id": ("{}", "AKIAIOSFODNN7EXAMPLE"),
    "aws session id": ("{}", "ASIAIOSFODNN7EXAMPLE"),
    "aws secret": ("aws_secret_access_key = {}", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    "aws secret spaced": ("aws_secret_access_key  {}", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    "aws secret in JSON": ('"SecretAccessKey": "{}"', "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    "pem": ("key: {} end", PEM),
    "pem in one line": ("{}", PEM.replace("\n", "\\n")),
    "pem cut off": ("{}", PEM[:60]),
    "pem pkcs8": ("{}", PEM.replace("RSA ", "")),
    "openssh": ("{}", PEM.replace("RSA", "OPENSSH")),
    "jwt": ("cookie {}", JWT),
    "nats user seed": ("{}", SEED),
    "nats account seed": ("{}", SEED.replace("SU", "SA", 1)),
    "nats creds": (
        "-----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------",
        SEED,
    ),
    "nats user jwt": ("-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------", JWT),
    "url": ("cloned https://{}@github.com/a/b", "me:pa55"),
    "url token": ("cloned https://{}@github.com/a/b", "tok3n"),
    "url with @ in the password": ("nats://{}@host:4222", "me:p@ss"),
    "url of a database": ("postgresql+psycopg://{}@db/x", "me:pw"),
}


@pytest.mark.parametrize("kind", CREDENTIALS)
def test_b9_every_kind_of_credential_is_redacted(path: Path, kind: str) -> None:
    around, secret = CREDENTIALS[kind]
    text = around.format(secret)
    log.info(text)
    log.info("said: %s!", text)
    log.info("field", extra={"said": text, "deep": [{"a": (text, 1)}], "raw": text.encode()})
    try:
        raise ValueError(text)
    except ValueError:
        log.exception("failed")
    content = path.read_text()
    for part in (secret, json.dumps(secret)[1:-1], secret.splitlines()[-1]):
        assert part not in content
    assert content.count(REDACTED) >= 6


@pytest.mark.parametrize(
    "text",
    [
        "agent amy is working (Bash) since 14:02:11, 41.2k tokens",
        "GET /agents?text=1&columns=80 HTTP/1.1 200",
        "the token expired; max_tokens: 4096",
        "task-abcdefghijklmnopqrstuvwxyz was risk-free",
        "ssh://git@github.com/a/b and git@github.com:a/b",
        "http://127.0.0.1:9199/agents/amy@home",
        "commit 1028c0b1099344de4420252aa6cdf831267fef86",
        "/work/main/.venv/lib/python3.11/site-packages/_pytest/monkeypatch.py",
        "2026-11-16T01:02:03.456Z pid 4121 port 9199",
    ],
)
def test_what_is_no_credential_stays(text: str) -> None:
    assert Redactor().text(text) == text


@pytest.mark.parametrize(
    "name", ["token", "BULLPEN_TOKEN", "api-key", "x-api-key", "Authorization", "db.password"]
)
def test_b9_a_field_whose_name_says_so_is_redacted_whole(path: Path, name: str) -> None:
    log.info(
        "x", extra={name: "abc", "headers": {name: ["abc"]}, "list": [(name.encode(), b"abc")]}
    )
    line = last(path)
    assert line[name] == line["headers"][name] == line["list"][0][1] == REDACTED


def test_b9_counts_of_tokens_are_no_tokens(path: Path) -> None:
    log.info("x", extra={"tokens": 41200, "input_tokens": 7, "has_token": True, "token": ""})
    line = last(path)
    assert (line["tokens"], line["input_tokens"], line["has_token"]) == (41200, 7, True)
    assert line["token"] == ""


class Loud:
    """Its text is the secret."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


@settings(max_examples=80)
@given(
    secret=st.text(st.characters(exclude_categories=["Cs"]), min_size=8, max_size=40).filter(
        lambda text: len(text.strip()) >= 8
    ),
    cuts=st.lists(st.integers(0, 40), max_size=3),
    before=st.text(max_size=10),
)
@pytest.mark.slow
def test_b9_a_registered_secret_never_appears(
    tmp_path: Path, secret: str, cuts: list[int], before: str
) -> None:
    in_json = json.dumps(secret)[1:-1]
    forms = (secret, in_json, json.dumps(in_json)[1:-1], repr(secret)[1:-1])
    # "[redacted]" and the names of fields are there whatever the secret is. hypothesis tries what
    # it finds in the code, so it does try them.
    others = all_texts(logged_with(tmp_path, "Q" * 8, [], ""))
    assume(not any(form in text for form in forms for text in others))
    for text in all_texts(logged_with(tmp_path, secret, cuts, before)):
        for form in forms:
            assert form not in text


def logged_with(tmp_path: Path, secret: str, cuts: list[int], before: str) -> str:
    """A log that had that secret in every place."""
    redactor = Redactor()
    handler = logs.JsonFile(tmp_path / "property.log", "c", redactor)
    redactor.add([secret])
    edges = [0, *sorted(min(cut, len(secret)) for cut in cuts), len(secret)]
    pieces = [secret[a:b] for a, b in itertools.pairwise(edges)]

    def record(msg: str, *args: object, **fields: object) -> None:
        made = logging.LogRecord("c", 20, "f", 1, msg, args, None)
        vars(made).update(fields)
        handler.handle(made)

    record(before + secret.replace("%", "%%"))
    record("%s" * len(pieces), *pieces)
    record("%r %s", Loud(secret), {"k": secret, secret: 1})
    record("%d", secret)
    record("f", a=secret, b=[secret, {secret: secret}], c=Loud(before + secret), d=secret.encode())
    record(
        "j %s", json.dumps({"a": json.dumps([secret])}), e=json.dumps(secret, ensure_ascii=False)
    )
    try:
        raise ValueError(before, secret)
    except ValueError:
        made = logging.LogRecord("c", 40, "f", 1, "failed", (), sys.exc_info())
        handler.handle(made)
    handler.close()
    content = handler.path.read_text()
    handler.path.unlink()
    assert handler.dropped == 0
    return content


def all_texts(content: str) -> list[str]:
    """A log as it is, and every string in it."""
    return [content, *(text for line in content.splitlines() for text in texts(line))]


def texts(line: str) -> list[str]:
    """Every string in a line, as who reads the log gets to see it."""

    def inside(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            value = [*value, *value.values()]
        if isinstance(value, list):
            for held in value:
                yield from inside(held)
        elif isinstance(value, str):
            yield value

    return list(inside(json.loads(line)))


def test_b9_a_number_may_be_a_secret(path: Path) -> None:
    logs.add_secret("987654321")
    log.info("pin %d", 987654321, extra={"pin": 987654321})
    assert "987654321" not in path.read_text()


def test_b9_secrets_can_be_added_while_it_runs_and_short_ones_do_no_harm(path: Path) -> None:
    log.info("hush-hush-now")
    logs.add_secret("hush-hush-now")
    logs.add_secret("")
    logs.add_secret("a")
    log.info("hush-hush-now %s", "hush%2Dhush hush-hush-now")
    assert [line["message"] for line in lines(path)] == [
        "hush-hush-now",
        f"{REDACTED} hush%2Dhush {REDACTED}",
    ]


def test_a_secret_that_holds_another_is_redacted_whole() -> None:
    redactor = Redactor()
    redactor.add(["inner-secret", "outer-inner-secret-outer"])
    assert redactor.text("x outer-inner-secret-outer inner-secret") == f"x {REDACTED} {REDACTED}"


SECRET = "  pä ss/w\"ord\\+'1\t"


@pytest.mark.parametrize(
    "shown",
    [
        SECRET,
        SECRET.strip(),
        repr(SECRET)[1:-1],
        repr(SECRET.encode()),
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        json.dumps(json.dumps(SECRET)),
        quote(SECRET),
        quote(SECRET, safe=""),
        quote_plus(SECRET),
    ],
)
def test_b9_a_secret_is_recognised_as_it_is_usually_quoted(shown: str) -> None:
    redactor = Redactor()
    redactor.add([SECRET])
    text = redactor.text(f"<{shown}>")
    assert REDACTED in text
    assert not re.search("[äpsw]", text.replace(REDACTED, "")), text


def test_b9_the_name_of_a_field_may_be_a_secret(path: Path) -> None:
    logs.add_secret("hush-as-a-name")
    log.info("x", extra={"hush-as-a-name": 1, "inner": {"hush-as-a-name": 1}})
    assert "hush-as-a-name" not in path.read_text()
    assert last(path)[REDACTED] == 1


def test_b9_stacks_hold_no_secret(path: Path) -> None:
    logs.add_secret("hush-in-the-stack")
    log.info("where", stack_info=True)  # the line of code is part of it: hush-in-the-stack
    assert "stack" in last(path)
    assert "hush-in-the-stack" not in path.read_text()


def test_b9_no_line_of_a_secret_of_several_lines_appears(path: Path) -> None:
    """A program prints a key line by line, and each becomes a record of its own."""
    secret = "first-line-of-it\nsecond-line-of-it\r\nthird-line-of-it\n"
    logs.add_secret(secret)
    for line in secret.splitlines():
        log.info("said: %s", line)
    log.info("all of it: %s", secret, extra={"whole": secret})
    assert "line-of-it" not in path.read_text()
    assert [line["message"] for line in lines(path)][:3] == [f"said: {REDACTED}"] * 3


def test_hostile_text_takes_linear_time_and_is_cut() -> None:
    redactor = Redactor()
    redactor.add(["known-secret"])
    for unit in ("a", "x-", "http://a", "KEY", "-----BEGIN "):
        text = redactor.text(unit * (1 << 17))
        assert len(text) < 70_000


def test_a_secret_at_the_cut_does_not_show_its_first_half() -> None:
    redactor = Redactor()
    redactor.add(["known-secret", "S" * 2000])
    long = "S" * 2000 * 65
    text = long + "x" * (READ_CHARACTERS - len(long) - 6) + "known-secret" + "y" * 100
    assert "known" not in redactor.text(text)


def test_b9_files_are_private_bounded_and_few(tmp_path: Path) -> None:
    handler = logs.JsonFile(tmp_path / "hub.log", "hub", file_bytes=1000, files=3)
    for number in range(60):
        handler.handle(logging.makeLogRecord({"msg": f"number {number}", "levelname": "INFO"}))
    handler.close()
    files = sorted(tmp_path.glob("hub.log*"))
    assert [file.name for file in files] == ["hub.log", "hub.log.1", "hub.log.2"]
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files)
    assert all(file.stat().st_size <= 1000 for file in files)
    numbers = [int(line["message"].split()[1]) for file in reversed(files) for line in lines(file)]
    assert numbers == list(range(numbers[0], 60))


def test_b9_its_defaults_are_ten_megabytes_five_times() -> None:
    assert (logs.FILE_BYTES, logs.FILES) == (10_000_000, 5)


def test_two_processes_and_a_removed_file_lose_nothing(tmp_path: Path) -> None:
    one = logs.JsonFile(tmp_path / "hub.log", "one", file_bytes=2000)
    two = logs.JsonFile(tmp_path / "hub.log", "two", file_bytes=2000)
    for number in range(20):
        for handler in (one, two):
            handler.handle(logging.makeLogRecord({"msg": f"n {number}"}))
    files = sorted(tmp_path.glob("hub.log*"))
    assert sum(len(lines(file)) for file in files) == 40
    one.path.unlink()
    one.handle(logging.makeLogRecord({"msg": "again"}))
    assert [line["message"] for line in lines(one.path)] == ["again"]
    one.close()
    two.close()


def test_b9_full_disk_drops_counts_and_tells_later(
    path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A limit on file size is the full disk that a test can have: it, too, cuts lines short."""
    import signal

    log.info("before")
    size = path.stat().st_size
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50, hard))
    try:
        for number in range(3):
            log.info("lost %d", number)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    log.info("after")
    assert capfd.readouterr() == ("", "")
    texts = path.read_text().splitlines()
    assert len(texts) == 4  # one of them is the part of a line that had room
    whole = [json.loads(texts[number]) for number in (0, 2, 3)]
    assert [line["message"] for line in whole] == ["before", "after", "log lines were dropped"]
    assert whole[2]["dropped"] == 3


@pytest.mark.parametrize("where", ["missing/hub.log", "directory"])
def test_b9_a_log_that_cannot_be_opened_is_silent(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], where: str
) -> None:
    (tmp_path / "directory").mkdir()
    handler = logs.JsonFile(tmp_path / where, "hub")
    handler.handle(logging.makeLogRecord({"msg": "x"}))
    assert handler.dropped == 1
    assert capfd.readouterr() == ("", "")


class Raising:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


class Logging:
    def __repr__(self) -> str:
        log.info("from within")
        return "logged"


def test_b9_values_that_raise_or_log_do_not_break_the_caller(
    path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # Not by a logger: pytest has handlers of its own there, which do break.
    [handler] = [one for one in logging.getLogger().handlers if isinstance(one, logs.JsonFile)]
    for fields in (
        {"msg": "%s", "args": (Raising(),)},
        {"msg": "x", "field": Raising()},
        {"msg": "%s", "args": (Logging(),)},
        {"msg": "%d of %d", "args": (1,)},
    ):
        handler.handle(logging.makeLogRecord(fields))
    assert capfd.readouterr() == ("", "")
    messages = [line["message"] for line in lines(path)]
    assert messages == ["logged", "log lines were dropped", "%d of %d (1,)"]


def test_many_threads_write_whole_lines(path: Path) -> None:
    def work(name: int) -> None:
        for number in range(50):
            log.info("%d %d %s", name, number, "x" * 500)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lines(path)) == 200


def test_b9_uvicorns_own_loggers_go_through_it(path: Path) -> None:
    import uvicorn

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/boom":
            raise RuntimeError("BULLPEN_TOKEN=t0p-secret")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(app, log_config=None, lifespan="off")
        # Another server in this process may have turned its own off, for all of them.
        logging.getLogger("uvicorn.access").propagate = True
        logging.getLogger("uvicorn.access").setLevel(logging.NOTSET)
        server = uvicorn.Server(config)
        thread = threading.Thread(
            target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True
        )
        thread.start()
        wait_until(lambda: server.started)
        for target in ("/fine?token=t0p-secret&a=b", "/boom"):
            with socket.create_connection(listener.getsockname()) as client:
                client.sendall(
                    f"GET {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode()
                )
                while client.recv(4096):
                    pass
        server.should_exit = True
        thread.join(60)
    content = path.read_text()
    assert "t0p-secret" not in content
    found = {line["logger"]: line for line in lines(path)}
    assert f"GET /fine?token={REDACTED}&a=b" in content
    assert found["uvicorn.access"]["component"] == "hub"
    assert f"BULLPEN_TOKEN={REDACTED}" in content


def test_uvicorns_handlers_are_taken_away(path: Path) -> None:
    import uvicorn

    uvicorn.Config("x:y")  # puts its own there
    assert logging.getLogger("uvicorn.access").handlers
    handler = logs.configure(path, "hub")
    for name in logs.SERVER_LOGGERS:
        assert not logging.getLogger(name).handlers
        assert logging.getLogger(name).propagate
    logging.getLogger().removeHandler(handler)
    handler.close()


def test_importing_it_configures_nothing() -> None:
    code = (
        "import logging; from bullpen.component import logs;"
        "assert logging.getLogger().handlers == []"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_closed_log_opens_again(path: Path) -> None:
    [handler] = [one for one in logging.getLogger().handlers if isinstance(one, logs.JsonFile)]
    log.info("first")
    handler.close()
    log.info("again")
    assert last(path)["message"] == "again"
