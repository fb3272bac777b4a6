"""The doctor finds what is wrong, says how to put it right, and leaves nothing behind."""

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.homes import create_home
from bullpen.paths import Home, short_sockets
from tests.conftest import Ran

Bullpen = Callable[..., Ran]


@pytest.fixture
def home() -> Iterator[Home]:
    """One whose sockets need no short cut, whatever the length of pytest's own paths."""
    root = Path(tempfile.mkdtemp(dir="/tmp"))
    yield create_home(root)
    shutil.rmtree(root)


def found(ran: Ran) -> dict[str, Any]:
    return {check["name"]: check for check in ran.json["checks"]}


def fake_git(tmp_path: Path, says: str) -> str:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "git").write_text(f"#!/bin/sh\necho '{says}'\n")
    (tools / "git").chmod(0o755)
    return f"{tools}:/usr/bin:/bin"


def test_all_is_well(home: Home, bullpen: Bullpen) -> None:
    before = sorted(home.root.rglob("*"))
    ran = bullpen("doctor", cwd=home.root)
    assert ran.code == 0
    lines = ran.out.splitlines()
    column = lines[0].index("git") + max(len(line.split()[1]) for line in lines) + 2
    assert all(line[column - 2 : column] == "  " and line[column] != " " for line in lines)
    # Where systemd runs there is one more, which is not in the test's hands.
    lines = [line for line in lines if line.split()[1] != "lingering"]
    assert [line.split()[:2] for line in lines] == [
        ["ok", name] for name in ("git", "python", "home", "modes", "sockets")
    ]
    assert ", 0700, " in lines[2]
    assert " v0.1.0, " in lines[2]
    assert lines[2].endswith(" free")
    assert sorted(home.root.rglob("*")) == before


def test_without_a_home_the_rest_is_checked_and_init_named(bullpen: Bullpen) -> None:
    ran = bullpen("doctor", "--json")
    assert ran.code == 0
    assert ran.json["ok"] is True
    checks = found(ran)
    assert [name for name in checks if name != "lingering"] == ["git", "python", "home"]
    assert checks["home"]["status"] == "warn"
    assert checks["home"]["fix"] == "bullpen init"
    assert sys.executable in checks["python"]["text"]


@pytest.mark.parametrize(
    ("says", "status", "text"),
    [
        ("git version 2.38.0", "ok", "2.38.0"),
        ("git version 3.0.1 (Apple Git-154)", "ok", "3.0.1"),
        ("git version 2.37.9", "fail", "2.37.9, needs 2.38"),
        ("git version 1.99", "fail", "1.99, needs 2.38"),
        ("no idea", "fail", "git --version says 'no idea'"),
    ],
)
def test_git_versions(tmp_path: Path, bullpen: Bullpen, says: str, status: str, text: str) -> None:
    ran = bullpen("doctor", "--json", PATH=fake_git(tmp_path, says))
    check = found(ran)["git"]
    assert (check["status"], check["text"]) == (status, text)
    assert ran.code == (1 if status == "fail" else 0)


def test_missing_git_fails(tmp_path: Path, bullpen: Bullpen) -> None:
    ran = bullpen("doctor", PATH=str(tmp_path))
    assert ran.code == 1
    [line] = [line for line in ran.out.splitlines() if line.startswith("fail")]
    assert line.split(maxsplit=2) == ["fail", "git", "not installed · install git 2.38 or newer"]


def test_open_home_is_a_warning_with_the_command(home: Home, bullpen: Bullpen) -> None:
    home.root.chmod(0o755)
    ran = bullpen("doctor", "--json", cwd=home.root)
    assert ran.code == 0
    check = found(ran)["home"]
    assert check["status"] == "warn"
    assert check["fix"] == f"chmod 700 {home.root}"


@pytest.mark.parametrize("name", ["sockets", "credentials"])
def test_h5_open_private_directory_fails_with_the_command(
    home: Home, bullpen: Bullpen, name: str
) -> None:
    (home.root / name).chmod(0o750)
    ran = bullpen("doctor", "--json", cwd=home.root)
    assert ran.code == 1
    assert ran.json["ok"] is False
    check = found(ran)["modes"]
    assert check["status"] == "fail"
    assert f"{name} 0750" in check["text"]
    assert check["fix"] == f"chmod 700 {home.root / name}"


def test_missing_sockets_directory_fails_with_the_command(home: Home, bullpen: Bullpen) -> None:
    home.sockets.rmdir()
    ran = bullpen("doctor", "--json", cwd=home.root)
    assert ran.code == 1
    checks = found(ran)
    assert checks["sockets"]["status"] == "fail"
    assert checks["modes"]["fix"] == f"mkdir -m 700 {home.sockets}"


@pytest.fixture
def long_home(tmp_path: Path) -> Iterator[Home]:
    home = create_home(tmp_path / ("long" * 30))
    yield home
    shutil.rmtree(short_sockets(home).parent)


def test_h5_long_home_is_reached_through_tmp_and_a_stale_link_heals(
    long_home: Home, bullpen: Bullpen
) -> None:
    link = short_sockets(long_home)
    link.unlink()
    link.symlink_to("/gone")
    check = found(bullpen("doctor", "--json", cwd=long_home.root))["sockets"]
    assert check["status"] == "ok"
    assert check["text"] == f"bound and connected through {link}"
    assert list(long_home.sockets.iterdir()) == []


def test_h5_unsafe_directory_in_tmp_fails_with_the_reason(
    long_home: Home, bullpen: Bullpen
) -> None:
    directory = short_sockets(long_home).parent
    directory.chmod(0o777)
    ran = bullpen("doctor", "--json", cwd=long_home.root)
    directory.chmod(0o700)
    assert ran.code == 1
    assert "mode 0700; it is drwxrwxrwx" in found(ran)["sockets"]["text"]


def test_h1_wrong_bullpen_dir_fails(tmp_path: Path, bullpen: Bullpen) -> None:
    ran = bullpen("doctor", "--json", BULLPEN_DIR=str(tmp_path))
    assert ran.code == 1
    assert "has no .bullpen-dir.txt" in found(ran)["home"]["text"]
