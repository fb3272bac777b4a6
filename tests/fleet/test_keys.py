"""Keys of hosts, the server's configuration, and who the server lets in."""

import asyncio
import contextlib
import json
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bullpen.errors import BullpenError
from bullpen.fleet import keys, link, presence
from bullpen.fleet.credential import (
    Certificate,
    Credential,
    check_certificate,
    issue,
    read_credential,
)
from bullpen.fleet.nkeys import Signer, Verifier, make_seed
from bullpen.fleet.server_certificate import ensure_certificate
from bullpen.fleet.subjects import key
from tests.commands import Ran
from tests.fleet.links import reached
from tests.fleet.machines import Machines, made_machines
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

Run = Callable[..., Ran]

SEED = "SUAMLK2ZNL35WSMW37E7UD4VZ7ELPKW7DHC3BWBSD2GCZ7IUQQXZIORRBU"
PUBLIC = "UCK5N7N66OBOINFXAYC2ACJQYFSOD4VYNU6APEJTAVFZB2SVHLKGEW7L"


def test_l5_a_key_signs_and_only_its_public_half_agrees() -> None:
    signer, other = Signer(make_seed()), Signer(make_seed())
    signature = signer.sign(b"text")
    assert Verifier(signer.public).is_signed(b"text", signature)
    assert not Verifier(signer.public).is_signed(b"other", signature)
    assert not Verifier(other.public).is_signed(b"text", signature)


def test_l5_a_key_is_written_as_nats_writes_it() -> None:
    """Of the NKeys project's own tests."""
    assert Signer(SEED).public == PUBLIC
    assert make_seed().startswith("SU") and Signer(make_seed()).public.startswith("U")


@pytest.mark.parametrize(
    "seed",
    ["", "SU", "x", SEED[:-1] + "1", SEED.replace("K2Z", "K3Z"), SEED[:-2], PUBLIC, SEED.lower()],
)
def test_l5_a_seed_that_is_none_is_refused_and_not_repeated(seed: str) -> None:
    with pytest.raises(BullpenError) as caught:
        Signer(seed)
    assert not seed or len(seed) < 3 or seed not in caught.value.message


def test_l5_only_the_fleets_own_key_says_whose_key_it_is() -> None:
    authority, thief = make_seed(), make_seed()
    good, forged = issue(authority, "h1", make_seed()), issue(thief, "h1", make_seed())
    check_certificate(good.authority, "h1", good.certificate)
    for host, certificate in (
        ("h2", good.certificate),
        ("h1", forged.certificate),
        ("h1", Certificate(forged.certificate.public, good.signature)),
        ("h1", Certificate(good.certificate.public, "?")),
    ):
        with pytest.raises(BullpenError, match="given no such key"):
            check_certificate(good.authority, host, certificate)


def test_l5_fleet_key_makes_private_keys_and_says_what_to_do(tmp_path: Path, bullpen: Run) -> None:
    ran = bullpen("fleet", "key", "h1", "h2", "--listen", "127.0.0.1:14222")
    assert ran.code == 0, ran
    assert ran.out.splitlines()[-1].endswith("nats.conf · bullpen fleet serve")
    assert "bullpen fleet join h1.json --url nats://HOST:14222" in ran.out
    directory = tmp_path / "fleet"
    for name in ("h1.json", "h2.json", "authority.seed"):
        assert stat.S_IMODE((directory / name).stat().st_mode) == 0o600
    # Made in a repository, it does not get into a commit.
    assert (directory / ".gitignore").read_text() == "*\n"
    config = (directory / "nats.conf").read_text()
    assert "sync_interval: always" in config and '"127.0.0.1:14222"' in config
    assert json.loads((directory / "h1.json").read_text())["seed"] not in config

    again = bullpen("fleet", "key", "h1")
    assert (again.code, "h1 has a key" in again.err) == (5, True)
    assert bullpen("fleet", "key", "--revoke", "h1").code == 0
    assert not (directory / "h1.json").exists()
    assert (
        Signer(read_credential(directory / "h2.json").seed).public
        in (directory / "nats.conf").read_text()
    )


@pytest.mark.parametrize("name", ["H1", "a.b", "h*", ">", "-x", "h1/amy", "ä", "x" * 33])
def test_l5_names_that_mean_more_to_the_server_are_no_hosts(
    tmp_path: Path, bullpen: Run, name: str
) -> None:
    ran = bullpen("fleet", "key", "--", name)
    assert ran.code == 2 and "is no name of a host" in ran.err
    assert not (tmp_path / "fleet" / "hosts.json").exists()


def test_l5_other_peoples_directories_are_left_alone(tmp_path: Path, bullpen: Run) -> None:
    (tmp_path / "fleet").mkdir()
    (tmp_path / "fleet" / "mine").write_text("")
    ran = bullpen("fleet", "key", "h1")
    assert ran.code == 5 and "has other files in it" in ran.err
    assert [path.name for path in (tmp_path / "fleet").iterdir()] == ["mine"]


def test_l5_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "h1.json"
    file.write_text(issue(make_seed(), "h1", make_seed()).to_text())
    file.chmod(0o640)
    with pytest.raises(BullpenError, match="others may read"):
        read_credential(file)
    other = tmp_path / "hostname"
    other.write_text("laptop\n")
    with pytest.raises(BullpenError, match="is no key of a fleet"):  # not: chmod 600
        read_credential(other)
    file.chmod(0o600)
    assert read_credential(file).host == "h1"
    file.write_text(file.read_text().replace('"h1"', '"h2"'))
    with pytest.raises(BullpenError, match="given no such key to h2"):
        read_credential(file)


# ── with the real server ──


@pytest.fixture
def machines() -> Iterator[Machines]:
    with made_machines("h1", "h2", joined=False) as made:
        yield made


def test_l6_of_several_servers_one_that_is_there_is_enough(machines: Machines) -> None:
    h1 = read_credential(machines.directory / "h1.json")
    for _ in range(5):  # in any order
        asyncio.run(link.try_key(f"nats://127.0.0.1:1,{machines.url},nats://127.0.0.1:2", h1))
    with pytest.raises(BullpenError, match="is not reached"):
        asyncio.run(link.try_key("nats://127.0.0.1:1,nats://127.0.0.1:2", h1))


def test_l5_a_key_is_tried_again_until_the_server_is_there(machines: Machines) -> None:
    h1 = read_credential(machines.directory / "h1.json")
    machines.kill_server()
    told: list[str] = []

    def start_it(why: str) -> None:
        if not told:
            machines.start_server()
        told.append(why)

    asyncio.run(link.try_key(machines.url, h1, 60, start_it))
    assert told and "Connect call failed" in told[0]
    machines.kill_server()
    with pytest.raises(BullpenError, match=r"not ready within 1 s: .*Connect call failed"):
        asyncio.run(link.try_key(machines.url, h1, 1))


def test_l5_a_key_that_is_not_let_in_is_not_tried_again(machines: Machines) -> None:
    server = (machines.directory / "server.pem").read_text()
    told: list[str] = []
    foreign = issue(make_seed(), "h1", make_seed(), server)
    with pytest.raises(BullpenError, match=r"does not let h1 in: .*Authorization"):
        asyncio.run(link.try_key(machines.url, foreign, 60, told.append))
    other = keys.change(machines.directory.parent / "other", add=["h1"], revoke=[])
    with pytest.raises(BullpenError, match=r"does not let h1 in: .*CERTIFICATE_VERIFY_FAILED"):
        asyncio.run(link.try_key(machines.url, read_credential(other.files["h1"]), 60, told.append))
    assert told == []


def test_l5_the_server_lets_a_host_act_under_its_own_name_alone(machines: Machines) -> None:
    async def act(as_host: str) -> list[str]:
        """h1's key speaks as `as_host`: what the server said against it."""
        noted: list[str] = []
        client = await link.connect(machines.url, h1, objected=noted.append)
        for subject in (
            f"bullpen.h2.{as_host}.x",
            key("live", as_host),
        ):
            await client.publish(subject, b"x")
        for subject in (f"bullpen.{as_host}.>", f"_INBOX_{as_host}.>"):
            await client.subscribe(subject)
        await reached(client)
        async with asyncio.timeout(60):
            while as_host != "h1" and len(noted) < 4:
                await asyncio.sleep(0.01)
        await client.close()
        return noted

    h1 = read_credential(machines.directory / "h1.json")
    assert asyncio.run(act("h1")) == []  # the same acts, allowed
    assert len(asyncio.run(act("h2"))) == 4


def test_l5_a_key_that_was_taken_back_is_let_in_no_longer(machines: Machines, bullpen: Run) -> None:
    h1 = read_credential(machines.directory / "h1.json")

    async def connected() -> None:
        closed = asyncio.Event()

        async def note() -> None:
            closed.set()

        client = await link.connect(machines.url, h1, closed=note)
        await presence.say_live(client, "h1", "life")
        ran = await asyncio.to_thread(
            bullpen, "fleet", "key", "--dir", machines.directory, "--revoke", "h1"
        )
        assert ran.code == 0 and "the server has been told" in ran.out, ran
        async with asyncio.timeout(60):
            await closed.wait()  # the server ends what it has let in before
        with pytest.raises(ConnectionError, match=r"(?i)authorization"):
            await link.connect(machines.url, h1)

    asyncio.run(connected())


@pytest.mark.parametrize("is_moved", [True, False])
def test_l5_a_key_is_said_to_count_no_longer_only_if_the_server_has_taken_that_over(
    machines: Machines, bullpen: Run, monkeypatch: pytest.MonkeyPatch, is_moved: bool
) -> None:
    """nats-server takes nothing over of a configuration with another `listen`."""
    h1 = read_credential(machines.directory / "h1.json")
    if is_moved:
        monkeypatch.setattr(keys, "TAKEN_SECONDS", 0.5)
        listen = f"0.0.0.0:{machines.port}"
        made = keys.change(machines.directory, add=[], revoke=["h1"], listen=listen)
        assert made.server == "refused"
        asyncio.run(_connect_and_close(machines.url, h1))
    else:
        ran = bullpen("fleet", "key", "--dir", machines.directory, "--revoke", "h1")
        assert "h1: its key counts no longer" in ran.out, ran
        with pytest.raises(ConnectionError, match=r"(?i)authorization"):
            asyncio.run(link.connect(machines.url, h1))


def test_l5_without_a_server_nobody_is_said_to_have_been_told(
    machines: Machines, bullpen: Run
) -> None:
    machines.kill_server()
    ran = bullpen("fleet", "key", "--dir", machines.directory, "--revoke", "h1")
    assert "h1: its key counts until the server has read" in ran.out, ran
    assert "no longer" not in ran.out and "been told" not in ran.out
    wrong = bullpen("fleet", "key", "--dir", machines.directory, "--listen", "here")
    assert wrong.code == 2 and "no ADDRESS:PORT" in wrong.err


def test_l5_join_changes_nothing_if_the_server_does_not_take_the_key(machines: Machines) -> None:
    pen = machines.hosts["h1"]
    before = (pen.root / "config.yaml").read_text()
    server = (machines.directory / "server.pem").read_text()
    foreign = issue(make_seed(), "h1", make_seed(), server)
    file = pen.root.parent / "foreign.json"
    file.write_text(foreign.to_text())
    file.chmod(0o600)
    ran = pen.cli("fleet", "join", file, "--url", machines.url.removeprefix("nats://"))
    assert ran.code == 2 and '--url: "127.0.0.1' in ran.err, ran
    ran = pen.cli("fleet", "join", file, "--url", machines.url)
    assert ran.code == 3 and "does not have this key, or no more" in ran.err, ran
    machines.kill_server()
    ran = pen.cli("fleet", "join", machines.directory / "h1.json", "--url", machines.url)
    assert ran.code == 3 and "Connect call failed" in ran.err, ran
    assert (pen.root / "config.yaml").read_text() == before
    assert not (pen.root / "credentials" / "fleet.json").exists()


def test_l5_join_changes_nothing_if_the_configuration_cannot_be_changed(machines: Machines) -> None:
    pen = machines.hosts["h1"]
    (pen.root / "config.yaml").write_text("fleet: {url: nats://h, name: h1}\nport: {\n")
    key_file = pen.root / "credentials" / "fleet.json"
    key_file.parent.mkdir(parents=True, exist_ok=True)
    key_file.write_text("that of before")
    ran = pen.cli("fleet", "join", machines.directory / "h1.json", "--url", machines.url)
    assert ran.code != 0 and "is left as it is" in ran.err, ran
    assert key_file.read_text() == "that of before"


OLD_SERVER = """
import json, socket, ssl, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("server.pem", "server.key")
while True:
    line = context.wrap_socket(listener.accept()[0], server_side=True)
    info = {"server_id": "x", "version": "2.10.29", "max_payload": 1048576, "headers": True}
    line.sendall(b"INFO " + json.dumps(info).encode() + b"\\r\\n")
    data = b""
    while b"PING\\r\\n" not in data:
        data += line.recv(4096) or sys.exit()
    line.sendall(b"PONG\\r\\n")
"""


def test_l5_a_server_that_cannot_let_keys_expire_is_refused_with_the_reason(
    tmp_path: Path,
) -> None:
    server = ensure_certificate(tmp_path)
    old = subprocess.Popen([sys.executable, "-c", OLD_SERVER], stdout=subprocess.PIPE, cwd=tmp_path)
    try:
        assert old.stdout is not None
        port = int(old.stdout.readline())
        credential = issue(make_seed(), "h1", make_seed(), server)
        with pytest.raises(link.ServerUnfitError) as caught:
            asyncio.run(link.connect(f"nats://127.0.0.1:{port}", credential))
        assert "version 2.10" in caught.value.message and "keys expire" in caught.value.message
        assert "2.11" in caught.value.hint
    finally:
        old.send_signal(signal.SIGKILL)
        old.wait()
        old.stdout.close()  # type: ignore[union-attr]


def test_l5_a_server_without_the_fleets_certificate_is_not_spoken_to(
    machines: Machines, tmp_path: Path
) -> None:
    """Somebody between who has another certificate, or none, hears nothing."""
    h1 = read_credential(machines.directory / "h1.json")
    other = replace(h1, server=ensure_certificate(tmp_path))
    with pytest.raises(ConnectionError, match=r"(?i)certificate"):
        asyncio.run(link.connect(machines.url, other))
    heard: list[bytes] = []

    def listen(plain: socket.socket) -> None:
        line, _ = plain.accept()
        heard.append(line.recv(1 << 16))
        with line, contextlib.suppress(OSError):
            line.sendall(b'INFO {"version":"2.15.1","max_payload":1048576}\r\n')

    while not any(heard):  # on a busy machine it may give up before it has said a word
        assert len(heard) < 20
        with socket.create_server(("127.0.0.1", 0)) as plain:
            thread = threading.Thread(target=listen, args=(plain,))
            thread.start()
            with pytest.raises(ConnectionError):
                asyncio.run(link.connect(f"nats://127.0.0.1:{plain.getsockname()[1]}", h1))
            thread.join(60)
    assert heard[-1].startswith(b"\x16\x03")  # a TLS handshake, and nothing else
    assert h1.host.encode() not in heard[-1]
    asyncio.run(_connect_and_close(machines.url, h1))


async def _connect_and_close(url: str, credential: Credential) -> None:
    await (await link.connect(url, credential)).close()


def test_l5_the_written_configuration_is_one_that_the_server_reads_again(
    machines: Machines,
) -> None:
    machines.key("h3")
    credential = read_credential(machines.directory / "h3.json")

    def is_let_in() -> bool:
        async def try_once() -> bool:
            try:
                await (await link.connect(machines.url, credential)).close()
            except ConnectionError:
                return False
            return True

        return asyncio.run(try_once())

    wait_until(is_let_in)
