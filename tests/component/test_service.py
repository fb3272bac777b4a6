"""The systemd unit: what it says, that systemd reads it as meant, and where it goes."""

import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bullpen.cli.commands import doctor
from bullpen.component import service
from bullpen.errors import BullpenError, Kind
from bullpen.home.create import create_home


def test_b1_unit_of_a_plain_home() -> None:
    text = service.unit_text(Path("/opt/bp/bin/python"), Path("/home/me/.bullpen"))
    assert "ExecStart=/opt/bp/bin/python -P -m bullpen hub start --foreground\n" in text
    assert "WorkingDirectory=/\n" in text
    assert "Environment=BULLPEN_DIR=/home/me/.bullpen\n" in text
    assert "KillMode=process\n" in text
    assert "Restart=on-failure\n" in text
    assert "WantedBy=default.target\n" in text
    assert "PATH=" not in text


def test_b1_unit_of_what_comes_back_after_a_boot() -> None:
    python, home = Path("/opt/bp/bin/python"), Path("/home/me/.bullpen")
    text = service.up_unit_text(python, home, "bullpen-0123abcd.service", "/usr/bin")
    assert "ExecStart=/opt/bp/bin/python -P -m bullpen up --after-boot\n" in text
    for line in ("Wants=", "After="):
        assert f"{line}bullpen-0123abcd.service\n" in text
    assert "Type=oneshot\nRemainAfterExit=yes\n" in text  # once, and not when a hub has crashed
    assert "KillMode=process\n" in text
    assert "WantedBy=default.target\n" in text
    assert "Environment=PATH=/usr/bin\n" in text


@pytest.mark.parametrize(
    ("path", "execute", "environment"),
    [
        ("/a b", '"/a b/python"', '"BULLPEN_DIR=/a b"'),
        ("/100%", '"/100%%/python"', '"BULLPEN_DIR=/100%%"'),
        ("/$HOME", ':"/$HOME/python"', '"BULLPEN_DIR=/$HOME"'),
        ("/ü;#", '"/ü;#/python"', '"BULLPEN_DIR=/ü;#"'),
    ],
)
def test_b1_odd_paths_are_escaped(path: str, execute: str, environment: str) -> None:
    python = Path(path, "python")
    for text in (
        service.unit_text(python, Path(path)),
        service.up_unit_text(python, Path(path), "x.service"),
    ):
        assert f"ExecStart={execute} -P -m " in text
        assert f"Environment={environment}\n" in text


def test_b1_quotes_and_backslashes_of_a_home_are_escaped() -> None:
    text = service.unit_text(Path("/python"), Path('/it\'s "x"\\'))
    assert 'Environment="BULLPEN_DIR=/it\'s \\"x\\"\\\\"\n' in text
    assert 'Description=Bullpen hub (/it\'s "x"\\)\n' in text  # no \ at its end


@pytest.mark.parametrize("bad", ["/new\nExecStart=/bin/evil", "/tab\t", "/\udcff", "/\x1b"])
def test_b1_what_a_unit_cannot_hold_is_refused(bad: str) -> None:
    for python, home in ((Path(bad), Path("/x")), (Path("/x"), Path(bad))):
        with pytest.raises(BullpenError) as caught:
            service.unit_text(python, home)
        assert caught.value.kind is Kind.UNSUPPORTED
    with pytest.raises(BullpenError):
        service.unit_text(Path('/"x"/python'), Path("/x"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd's own reader")
@pytest.mark.parametrize("name", ["plain", "a b", "100% $HOME {x} ;#ü"])
def test_b1_systemd_reads_the_unit(tmp_path: Path, name: str) -> None:
    python = tmp_path / name / "python"
    python.parent.mkdir()
    python.symlink_to("/bin/true")
    unit, up = tmp_path / "bullpen-0123abcd.service", tmp_path / "bullpen-0123abcd-up.service"
    odd = tmp_path / 'it\'s "odd" \\'
    unit.write_text(service.unit_text(python, odd, "/usr/bin:/my 100% bin"))
    up.write_text(service.up_unit_text(python, odd, unit.name, "/usr/bin:/my 100% bin"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", unit, up],
        env={"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    # It complains of what it does not understand, line by line, and still succeeds.
    complaints = [line for line in done.stderr.splitlines() if "bullpen-0123abcd" in line]
    assert (done.returncode, complaints) == (0, [])


def test_b1_install_writes_the_unit_and_names_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = create_home(tmp_path / "my home")
    monkeypatch.setattr(service, "SYSTEMD", tmp_path)  # where systemd runs
    (path, up), commands = service.install(home, Path(sys.executable))
    name = f"bullpen-{home.id[:8]}"
    units = tmp_path / "person/.config/systemd/user"
    assert (path, up) == (units / f"{name}.service", units / f"{name}-up.service")
    assert commands[:2] == [
        "systemctl --user daemon-reload",
        f"systemctl --user enable --now {name}.service {name}-up.service",
    ]
    python, search_path = Path(sys.executable), os.environ["PATH"]
    assert path.read_text() == service.unit_text(python, home.root, search_path)
    assert up.read_text() == service.up_unit_text(python, home.root, path.name, search_path)
    assert service.install(home, Path(sys.executable))[0] == [path, up]
    assert sorted(file.name for file in units.iterdir()) == [up.name, path.name]


def test_b1_install_without_xdg_goes_to_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = create_home(tmp_path / "home")
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    for path in service.install(home, Path(sys.executable))[0]:
        assert str(path).startswith(f"{tmp_path}/person/.config/systemd/user/bullpen-")


def test_b1_lingering(tmp_path: Path) -> None:
    running, linger = tmp_path / "system", tmp_path / "linger"
    assert service.lingering(running, linger) == "no systemd"
    running.mkdir()
    assert service.lingering(running, linger) == "off"
    linger.mkdir()
    (linger / pwd.getpwuid(os.getuid()).pw_name).write_text("")
    assert service.lingering(running, linger) == "on"


@pytest.mark.parametrize(("found", "status"), [("on", "ok"), ("off", "warn"), ("no systemd", None)])
def test_b1_doctor_warns_when_lingering_is_off(
    monkeypatch: pytest.MonkeyPatch, found: str, status: str | None
) -> None:
    monkeypatch.setattr(service, "lingering", lambda: found)
    checks = {check.name: check for check in doctor.checks()}
    assert ("lingering" in checks) == (status is not None)
    if status is not None:
        assert checks["lingering"].status == status
    if status == "warn":
        assert checks["lingering"].text == "agents end when you log out"
        assert checks["lingering"].fix == "loginctl enable-linger"
