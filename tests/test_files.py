"""Small files: written whole and privately, and read where anything may have been put."""

import gc
import os
import stat
from pathlib import Path

import pytest

from bullpen import files


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_replaced_with_the_mode_that_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("before")
    path.chmod(0o666)
    files.write_atomically(path, "after \udcff", 0o600)
    assert path.read_bytes() == b"after \xff"
    assert mode_of(path) == 0o600
    assert list(tmp_path.glob(".*")) == []


def test_a_link_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("other")
    (tmp_path / "a").symlink_to(other)
    files.write_atomically(tmp_path / "a", "mine")
    assert not (tmp_path / "a").is_symlink()
    assert other.read_text() == "other"
    (tmp_path / "b").symlink_to(tmp_path / "nowhere")
    assert not files.create_once(tmp_path / "b", b"mine")
    assert not (tmp_path / "nowhere").exists()


def test_what_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("before")
    with pytest.raises(UnicodeEncodeError):
        files.write_atomically(path, "half \ud800")
    (tmp_path / "d").mkdir()
    with pytest.raises(IsADirectoryError):
        files.write_atomically(tmp_path / "d", "x")
    assert path.read_text() == "before"
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "person") == ["a", "d"]


@pytest.mark.parametrize("mode", [None, 0o600, 0o640, 0o664])
def test_a_file_has_the_mode_that_was_asked_for_or_what_the_umask_leaves(
    tmp_path: Path, mode: int | None
) -> None:
    old = os.umask(0o077)
    try:
        files.write_atomically(tmp_path / "a", "x", mode)
    finally:
        os.umask(old)
    assert mode_of(tmp_path / "a") == (mode or 0o600)


def test_a_file_that_is_made_once_is_private_and_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a"
    old = os.umask(0)
    try:
        assert files.create_once(path, b"first")
    finally:
        os.umask(old)
    assert not files.create_once(path, b"second")
    assert path.read_bytes() == b"first"
    assert mode_of(path) == 0o600
    assert path.stat().st_nlink == 1
    assert list(tmp_path.glob(".*")) == []


def test_a_directory_is_made_once_and_another_thing_is_no_directory(tmp_path: Path) -> None:
    for _ in range(2):
        files.make_directory(tmp_path / "d", 0o700)
    assert mode_of(tmp_path / "d") == 0o700
    (tmp_path / "f").touch()
    with pytest.raises(FileExistsError):
        files.make_directory(tmp_path / "f")


def open_descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def plant_link(path: Path) -> None:
    path.with_name("secret").write_text("secret")
    path.symlink_to(path.with_name("secret"))


@pytest.mark.parametrize("plant", [plant_link, os.mkfifo, Path.mkdir])
def test_what_is_no_plain_file_is_neither_read_nor_waited_for(
    tmp_path: Path, plant: object
) -> None:
    assert callable(plant)
    plant(tmp_path / "a")
    gc.collect()  # or what tests of before have left may be closed in between
    before = open_descriptors()
    with pytest.raises(OSError, match=r"/a'"):
        files.read_plain(tmp_path / "a", 100)
    assert open_descriptors() == before


@pytest.mark.parametrize("most", [0, 1, 5, 6, 7])
def test_no_more_is_read_than_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(files, "PIECE_BYTES", 2)
    (tmp_path / "a").write_bytes(b"123456")
    assert files.read_plain(tmp_path / "a", most) == b"123456"[:most]
