"""The marker and the id: reading, refusing, migrating, racing."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bullpen import __version__
from bullpen.errors import BullpenError, Kind
from bullpen.home import marker
from bullpen.home.paths import DIRECTORIES, find_home
from tests.commands import Ran


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "home"
    root.mkdir(mode=0o700)
    return root


def say(root: Path, content: str | bytes) -> None:
    (root / ".bullpen-dir.txt").write_bytes(
        content.encode() if isinstance(content, str) else content
    )


def said(root: Path) -> str:
    return (root / ".bullpen-dir.txt").read_text()


def test_h2_marker_is_one_line_with_the_version(root: Path) -> None:
    assert not marker.is_home(root)
    assert marker.create(root)
    assert said(root) == f"v{__version__}\n"
    assert marker.is_home(root)
    assert [path.name for path in root.iterdir()] == [".bullpen-dir.txt"]


def test_h2_marker_is_made_once(root: Path) -> None:
    say(root, "v0.0.3\n")
    assert not marker.create(root)
    assert said(root) == "v0.0.3\n"


@pytest.mark.parametrize(
    ("content", "version"),
    [
        ("v0.1.0\n", (0, 1, 0)),
        ("v1.22.333", (1, 22, 333)),
        ("v1.2.3\r\n", (1, 2, 3)),
        ("v1.2.3.dev4\n", (1, 2, 3)),
        ("v1.2.3rc1\n", (1, 2, 3)),
    ],
)
def test_h2_versions_are_read(root: Path, content: str, version: marker.Version) -> None:
    say(root, content)
    assert marker.read_version(root) == version


@pytest.mark.parametrize(
    "content",
    ["", "v\n", "0.1.0\n", "v1.0\n", "v1.0.0\nv2.0.0\n", "vx.y.z\n", b"\xff\x00", "v" * 999],
)
def test_h2_malformed_marker_names_file_and_content(root: Path, content: str | bytes) -> None:
    say(root, content)
    with pytest.raises(BullpenError) as caught:
        marker.read_version(root)
    assert str(root / ".bullpen-dir.txt") in caught.value.message
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 600


def test_h2_newer_major_is_refused_naming_the_version_needed(root: Path) -> None:
    say(root, "v2.3.4\n")
    with pytest.raises(BullpenError, match=r"needs bullpen 2\.3\.4") as caught:
        marker.bring_up_to_date(root, [], program="1.9.0")
    assert caught.value.kind is Kind.UNSUPPORTED
    assert said(root) == "v2.3.4\n"


def test_h2_newer_minor_of_the_same_major_is_left_alone(root: Path) -> None:
    say(root, "v1.9.0\n")
    marker.bring_up_to_date(root, [((1, 5, 0), Path.rmdir)], program="1.2.0")
    assert said(root) == "v1.9.0\n"


def test_h2_older_home_goes_through_the_newer_migrations_in_order(root: Path) -> None:
    say(root, "v1.1.0\n")
    ran: list[str] = []
    steps: list[marker.Migration] = [
        ((1, 1, 0), lambda root: ran.append("done long ago")),
        ((1, 2, 0), lambda root: ran.append("first")),
        ((2, 0, 0), lambda root: ran.append("second")),
    ]
    marker.bring_up_to_date(root, steps, program="2.1.0")
    assert ran == ["first", "second"]
    assert said(root) == "v2.1.0\n"
    marker.bring_up_to_date(root, steps, program="2.1.0")
    assert ran == ["first", "second"]


def test_h2_failed_migration_runs_again(root: Path) -> None:
    say(root, "v0.0.1\n")

    def die(root: Path) -> None:
        raise OSError("disk on fire")

    with pytest.raises(OSError, match="disk on fire"):
        marker.bring_up_to_date(root, [((0, 1, 0), die)], program="0.1.0")
    assert said(root) == "v0.0.1\n"


def test_h2_older_home_gets_its_missing_directories(root: Path) -> None:
    say(root, "v0.0.9\n")
    (root / "roles").mkdir()
    (root / "roles" / "mine.yaml").write_text("name: mine\n")
    find_home({"BULLPEN_DIR": str(root)}, root, root)
    assert all((root / name).is_dir() for name in DIRECTORIES)
    assert (root / "roles" / "mine.yaml").read_text() == "name: mine\n"
    assert said(root) == f"v{__version__}\n"


def test_h2_command_refuses_a_newer_home_and_version_still_answers(
    root: Path, bullpen: Callable[..., Ran]
) -> None:
    say(root, "v99.0.0\n")
    ran = bullpen("doctor", BULLPEN_DIR=str(root))
    assert ran.code == 1
    assert "needs bullpen 99.0.0" in ran.out
    ran = bullpen("version", BULLPEN_DIR=str(root))
    assert ran.code == 0
    assert f"refused: the home {root} needs bullpen 99.0.0" in ran.out


def test_h8_id_is_random_and_never_changes(root: Path, tmp_path: Path) -> None:
    first = marker.home_id(root)
    assert re.fullmatch("[0-9a-f]{16}", first)
    assert marker.home_id(root) == first
    assert (root / ".bullpen-id.txt").read_text() == f"{first}\n"
    assert marker.home_id(tmp_path) != first


def test_h8_id_made_by_many_at_once_is_one(root: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        ids = set(pool.map(marker.home_id, [root] * 64))
    assert len(ids) == 1
    assert [path.name for path in root.iterdir()] == [".bullpen-id.txt"]


@pytest.mark.parametrize(
    "text", ["", "0123456789abcdef", "0123456789abcdef\nmore\n", "g" * 16 + "\n"]
)
def test_h8_broken_id_is_an_error_and_not_replaced(root: Path, text: str) -> None:
    (root / ".bullpen-id.txt").write_text(text)
    with pytest.raises(BullpenError, match=re.escape(str(root / ".bullpen-id.txt"))):
        marker.home_id(root)
    assert (root / ".bullpen-id.txt").read_text() == text
