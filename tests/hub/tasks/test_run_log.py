"""A run's log as the hub reads it, while the holder writes it and puts it aside at its limit."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bullpen.engines import get_engine
from bullpen.engines.base import Reader
from bullpen.engines.lines import ModelText
from bullpen.holder.log import Log, open_file
from bullpen.hub.tasks.run import Fact, LogReader

LIMIT = 1000
LINES = [f"line {number}" for number in range(300)]  # more than three times the limit


def written(place: Path, lines: list[str]) -> Iterator[None]:
    """By a holder, in pieces that know nothing of lines."""
    log = Log(str(place), "output", LIMIT, open_file(str(place / "output.log")))
    data = memoryview("".join(f"{line}\n" for line in lines).encode())
    for start in range(0, len(data), 7):
        log.write(data[start : start + 7])
        yield


def reader_of(place: Path) -> LogReader:
    return LogReader(place / "output.log", Reader(get_engine("command")))


def read(reader: LogReader) -> list[Fact]:
    found: list[Fact] = []
    while facts := reader.facts():
        found += facts
    return found


def texts(facts: list[Fact]) -> list[str]:
    return [fact.line.text for fact in facts if isinstance(fact.line, ModelText)]


@pytest.mark.parametrize("every", [1, 10, 140])
def test_what_is_put_aside_meanwhile_is_read_all_the_same(tmp_path: Path, every: int) -> None:
    reader, found = reader_of(tmp_path), list[Fact]()
    for number, _ in enumerate(written(tmp_path, LINES)):
        if number % every == 0:
            found += read(reader)
    found += read(reader)
    assert (tmp_path / "output.log.1").exists()
    assert texts(found) == LINES
    assert found[-1].offset == sum(len(line) + 1 for line in LINES)


@pytest.mark.parametrize("count", [50, 150, 300])
def test_a_hub_that_comes_later_reads_what_is_there_to_the_end(tmp_path: Path, count: int) -> None:
    for _ in written(tmp_path, LINES[:count]):
        pass
    found = texts(read(reader_of(tmp_path)))
    kept = found if count < 300 else found[1:]  # the first may be the rest of one
    assert kept == LINES[count - len(kept) : count]
    assert len(kept) == count or len(kept) > 100
