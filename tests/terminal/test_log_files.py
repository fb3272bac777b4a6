"""The log on disk: all of it once, in order, also while it is rotated under the reader."""

from pathlib import Path
from typing import BinaryIO

from bullpen.terminal.log_files import LogFiles, open_with_timing


class Log:
    """Written as holders write it."""

    def __init__(self, directory: Path, limit: int) -> None:
        self.files = [directory / "output.log", directory / "output.timing"]
        self.limit = limit

    def write(self, data: bytes) -> None:
        for path, more in zip(self.files, (data, b"0.100000 %d\n" % len(data)), strict=True):
            with path.open("ab") as file:
                file.write(more)
        if self.files[0].stat().st_size >= self.limit:
            for path in self.files:
                path.rename(f"{path}.1")
                path.touch()


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
    log = Log(tmp_path, 50)
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
    assert len(written) > 1000


def test_k3_timing_and_log_belong_together(tmp_path: Path) -> None:
    log = Log(tmp_path, 20)
    for number in range(9):
        log.write(b"piece%d" % number)
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
