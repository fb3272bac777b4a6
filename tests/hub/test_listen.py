"""Where a hub listens: which port it takes."""

import json
import os
import shutil
import uuid
from pathlib import Path

import pytest

from bullpen.errors import BullpenError
from bullpen.home import hub_file, marker
from bullpen.home.paths import Home
from bullpen.home.settings import PORTS
from bullpen.hub import listen
from tests.hub.pen import Pen, made_pen
from tests.ports import reserved_port


def test_h10_bullpen_port_comes_before_the_settings(pen: Pen) -> None:
    with reserved_port() as named, reserved_port() as configured:
        environ = {"BULLPEN_PORT": str(named)}
        with listen.bind_port(pen.home, configured, environ) as listener:
            assert listener.getsockname() == ("127.0.0.1", named)
        with listen.bind_port(pen.home, configured, {"BULLPEN_PORT": ""}) as listener:
            assert listener.getsockname() == ("127.0.0.1", configured)


@pytest.mark.parametrize("text", ["0", "65536", "-1", "9000x", "٩٠٠٠", "1" * 100])
def test_h10_a_bullpen_port_that_is_none_is_refused(pen: Pen, text: str) -> None:
    with pytest.raises(BullpenError, match="BULLPEN_PORT is no port"):
        listen.bind_port(pen.home, None, {"BULLPEN_PORT": text})


def test_b1_port_is_the_highest_free_one_that_nobody_claims(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of ports that no other hub of this machine takes or leaves meanwhile."""
    with made_pen(with_port=False) as pen:
        ports = sorted(pen.free_port() for _ in range(5))
        monkeypatch.setattr(listen, "PORTS", ports)
        lower, higher, *claimed = ports
        (pen.root / "agents" / "web.yaml").write_text(f"port: {claimed[0]}\n")
        (pen.root / "directors" / "issues.yaml").write_text(f"x:\n  port: {claimed[1]}\n")
        # As `PUT /config` writes it.
        body = {"role": "r", "port": claimed[2]}
        (pen.root / "agents" / "api.yaml").write_text(json.dumps(body, indent=2))
        (pen.root / "agents" / "odd.yaml").mkdir()
        with (
            listen.bind_port(pen.home, None) as first,
            listen.bind_port(pen.home, None) as second,
        ):
            assert [each.getsockname()[1] for each in (first, second)] == [higher, lower]


def test_b1_port_of_the_last_hub_is_used_again_or_the_start_fails(pen: Pen) -> None:
    with reserved_port() as port:
        hub_file.write_hub_file(pen.home, port, "0.1.0")
        with listen.bind_port(pen.home, None) as again:
            assert again.getsockname()[1] == port
            with pytest.raises(BullpenError, match=f"port {port} is taken by pid {os.getpid()} "):
                listen.bind_port(pen.home, None)


def test_b1_a_copy_takes_a_free_port_and_a_moved_home_keeps_its_own(pen: Pen) -> None:
    assert pen.home.id
    with reserved_port() as port:
        hub_file.write_hub_file(pen.home, port, "0.1.0")
        copy = Home(Path(shutil.copytree(pen.root, pen.root.parent / "copy")))
        with listen.bind_port(copy, None) as listener:
            assert listener.getsockname()[1] in PORTS
        marker.renew_id(copy.root)  # as `init --accept` does
        with listen.bind_port(copy, None) as listener:
            assert listener.getsockname()[1] in PORTS
        link = pen.root.parent / "link"
        link.symlink_to(pen.root)
        moved = Home(pen.root.rename(pen.root.parent / "moved"))
        for same in (moved, copy):  # the original is gone: nobody else has the port
            with listen.bind_port(same, None) as listener:
                assert listener.getsockname()[1] == port
        moved.root.rename(pen.root)
        with listen.bind_port(Home(link), None) as listener:
            assert listener.getsockname()[1] == port


def test_b1_hub_file_of_another_host_is_not_trusted(pen: Pen) -> None:
    hub_file.write_hub_file(pen.home, 1, "0.1.0")
    ours = json.loads((pen.root / "hub.json").read_text())
    stranger = {**ours, "host": "elsewhere", "boot_id": str(uuid.uuid4())}
    (pen.root / "hub.json").write_text(json.dumps(stranger))
    with listen.bind_port(pen.home, None) as listener:
        assert listener.getsockname()[1] in PORTS
    # A machine that was given another name is still this one until it is booted again.
    with reserved_port() as port:
        (pen.root / "hub.json").write_text(json.dumps({**ours, "host": "renamed", "port": port}))
        with listen.bind_port(pen.home, None) as listener:
            assert listener.getsockname()[1] == port
