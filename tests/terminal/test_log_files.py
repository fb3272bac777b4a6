"""The log on disk: all of it once, in order, also while it is rotated under the reader."""

from pathlib import Path
from typing import BinaryIO

from bullpen.holder.log import Log
from bullpen.terminal.log_files import LogFiles, open_with_timing


def read(files: LogFiles) -> bytes:
    return b"".join(files.read_on())


def test_k3_nothing_yet(tmp_path: Path) -> None:
    with LogFiles(tmp_path) as files:
        assert read(files) == b""
        (tmp_path / "output.log").write_bytes(b"first")
        assert read(files) == b"first"


def test_k3_older_and_newer_in_order(tmp_path: Path) -> None:
    (tmp_path / "output.log.1").write_bytes(b"old")
    (tmp_path / "output.log").write_bytes(b"new")
    with LogFiles(tmp_path) as files:
        assert read(files) == b"oldnew"
        assert read(files) == b""


def test_k3_followed_across_rotations_nothing_is_missed_or_doubled(tmp_path: Path) -> None:
    log = Log(str(tmp_path), "output", 50, timing=True)
    seen = b""
    written = b""
    with LogFiles(tmp_path) as files:
        for number in range(100):
            # Up to a file and more between two looks.
            for _ in range(number % 13):
                piece = b"%05d\n" % len(written)
                log.write(piece)
                written += piece
            seen += read(files)
            assert seen == written
    log.close()
    assert len(written) > 1000


def test_k3_timing_and_log_belong_together(tmp_path: Path) -> None:
    log = Log(str(tmp_path), "output", 20, timing=True)
    for number in range(9):
        log.write(b"piece%d" % number)
    log.close()
    with open_with_timing(tmp_path) as pairs:
        for one, timing in pairs:
            sizes = [int(line.split()[1]) for line in timing]
            assert sum(sizes) == len(one.read())
        assert len(pairs) == 2
    assert all(file.closed for pair in pairs for file in pair)


def test_k3_what_is_written_between_a_look_and_the_rotation_is_not_missed(tmp_path: Path) -> None:
    (tmp_path / "output.log").write_bytes(b"one ")

    class Unlucky(LogFiles):
        def _following(self, current: BinaryIO) -> BinaryIO | None:
            with (tmp_path / "output.log").open("ab") as file:
                file.write(b"two ")
            (tmp_path / "output.log").rename(tmp_path / "output.log.1")
            (tmp_path / "output.log").write_bytes(b"three")
            self._following = super()._following  # type: ignore[method-assign]
            return super()._following(current)

    with Unlucky(tmp_path) as files:
        assert read(files) == b"one two three"
