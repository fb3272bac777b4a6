"""The output log: every byte, when it came, rotated once."""

import os
import shutil
from pathlib import Path

import pytest

from tests.holder.factory import Factory, Holder
from tests.holder.noise import file_of, noise
from tests.holder.programs import HEXER, PRINT_FILE, python, shell
from tests.modes import mode_of
from tests.processes import alive

LARGEST_FILE = 100 << 10


def timings(holder: Holder, name: str = "output.timing") -> list[tuple[float, int]]:
    lines = (holder.session / name).read_text().splitlines()
    pairs = [line.split() for line in lines]
    assert all(len(pair) == 2 for pair in pairs)
    return [(float(seconds), int(count)) for seconds, count in pairs]


@pytest.mark.slow
def test_k3_five_megabytes_arrive_complete_at_the_client_and_in_the_log(factory: Factory) -> None:
    data = noise(5_000_000)
    holder = factory.hold(python(PRINT_FILE, file_of(factory, data)))
    client = holder.ready()
    client.type(b"g")
    record = client.read_until("E", 60).json
    assert "D" not in {frame.type for frame in client.seen}
    assert client.output == data
    assert holder.log() == b"READY" + data
    assert sum(count for _, count in timings(holder)) == len(data) + 5
    span = sum(seconds for seconds, _ in timings(holder))
    assert 0 <= span <= record["ended"] - record["started"] + 0.1
    assert all(seconds >= 0 and count > 0 for seconds, count in timings(holder))


def test_k3_binary_output_is_kept_as_it_is(factory: Factory) -> None:
    data = os.urandom(300_000)
    holder = factory.hold(python(PRINT_FILE, file_of(factory, data)))
    client = holder.ready()
    client.type(b"g")
    client.read_until("E")
    assert client.output == data
    assert holder.log() == b"READY" + data


def test_k3_what_was_printed_is_in_the_log_while_the_program_runs(factory: Factory) -> None:
    holder = factory.hold(HEXER)
    client = holder.ready()
    client.type(b"abc")
    client.collect(b"616263")
    client.status()
    assert holder.log() == b"READY 616263"
    assert sum(count for _, count in timings(holder)) == 12


def rotated(factory: Factory, size: int, log_bytes: int) -> tuple[Holder, bytes]:
    data = noise(size)
    holder = factory.hold(python(PRINT_FILE, file_of(factory, data)), log_bytes=log_bytes)
    client = holder.ready()
    client.type(b"g")
    client.read_until("E")
    return holder, b"READY" + data


def test_k3_the_log_is_rotated_once_at_its_size(factory: Factory) -> None:
    holder, data = rotated(factory, 250_000, 150_000)
    old, new = holder.log("output.log.1"), holder.log()
    assert 150_000 <= len(old) < 150_000 + 66_000
    assert old + new == data
    for name, part in (("output.timing.1", old), ("output.timing", new)):
        assert sum(count for _, count in timings(holder, name)) == len(part)


def test_k3_an_older_rotated_log_is_replaced(factory: Factory) -> None:
    holder, data = rotated(factory, 1_000_000, 100_000)
    old, new = holder.log("output.log.1"), holder.log()
    assert data.endswith(old + new)
    assert 100_000 <= len(old) < 100_000 + 66_000
    assert len(new) < 100_000
    names = {path.name for path in holder.session.iterdir()}
    logs = {"output.log", "output.log.1", "output.timing", "output.timing.1"}
    assert names == {*logs, "exit.json", "holder.json"}
    assert {mode_of(holder.session / name) for name in names} <= {0o600}


def test_k3_standard_error_is_bounded_as_well(factory: Factory) -> None:
    code = "import os\nfor n in range(300): os.write(2, b'%03d' % n + b'x' * 996 + b'\\n')"
    holder = factory.hold(python(code), mode="pipe", log_bytes=100_000)
    holder.wait_gone()
    assert holder.log() == b""
    kept = sum(p.stat().st_size for p in holder.session.glob("stderr.log*"))
    assert kept < 2 * (100_000 + 66_000)
    assert holder.log("stderr.log").endswith(b"x\n") or holder.log("stderr.log.1").endswith(b"x\n")


@pytest.mark.parametrize("log_bytes", [50_000, 10**9])
def test_k3_a_full_disk_does_not_stop_the_program(bare_factory: Factory, log_bytes: int) -> None:
    # A limit for any file stands for the disk.
    data = noise(1_000_000)
    limit = f'ulimit -f {LARGEST_FILE >> 10}; exec "$@"'
    bare_factory.start(before=("/bin/bash", "-c", limit, "bash"))
    path = file_of(bare_factory, data)
    holder = bare_factory.hold(python(PRINT_FILE, path), log_bytes=log_bytes)
    client = holder.ready()
    client.type(b"g")
    assert client.read_until("E").json["code"] == 0
    assert client.output == data
    holder.wait_gone()
    whole, new = b"READY" + data, holder.log()
    if log_bytes > LARGEST_FILE:
        assert new == whole[:LARGEST_FILE]  # what was written before the disk was full
        return
    # A rotated log never gets that large: it goes on with what came later.
    old = holder.log("output.log.1")
    assert log_bytes <= len(old) <= LARGEST_FILE
    assert whole.endswith(old + new)  # the new one is empty if the last piece filled the old one


def test_k3_a_lost_directory_disturbs_nobody_at_rotation(factory: Factory) -> None:
    data = noise(400_000)
    program = (
        PRINT_FILE + "os.write(1, b'DONE')\nwhile x := os.read(0, 9): os.write(1, x.hex().encode())"
    )
    holder = factory.hold(python(program, file_of(factory, data)), log_bytes=100_000)
    driver = holder.ready()
    shutil.rmtree(holder.session)
    driver.type(b"g")
    driver.collect(b"DONE")
    assert driver.output == data + b"DONE"
    others = [holder.attached(replay=False) for _ in range(5)]
    driver.type(b"a")
    driver.collect(b"DONE61")
    for client in others:
        client.collect(b"61")
    assert driver.output == data + b"DONE61"
    assert all(client.output == b"61" for client in others)
    assert alive(holder.pid)


def test_k3_a_second_program_in_a_session_does_not_take_the_log_apart(factory: Factory) -> None:
    first = factory.hold(shell("echo first"))
    first.wait_gone()
    second = factory.hold(shell("echo second"), session=str(first.session))
    second.wait_gone()
    text = Path(second.session / "output.log").read_bytes()
    assert text.endswith(b"second\r\n")
    assert sum(count for _, count in timings(second)) == len(text)
