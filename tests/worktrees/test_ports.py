"""Ports of worktrees: a block of its own for each, for as long as it is there."""

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen import worktrees
from bullpen.home.settings import Settings
from bullpen.worktrees import Block, Site, Spec
from bullpen.worktrees.port_blocks import (
    DEFAULT_RANGE,
    MOST_PORTS,
    PROJECT_NAME,
    choose_block,
    place_to_start,
    port_variables,
    project_name,
)
from bullpen.worktrees.ports import is_bindable
from bullpen.worktrees.records import Record, find_record, from_json
from tests.worktrees.killed import died_at_effect
from tests.worktrees.port_ranges import listening, own_range
from tests.worktrees.repos import assert_healthy, commit, git, make_repo, refs


@pytest.fixture
def blocks(site: Site) -> Iterator[Site]:
    """A site with room for three blocks of four."""
    with own_range(12) as ports:
        yield dataclasses.replace(site, port_range=ports)


def ports_of(site: Site, name: str) -> tuple[int, ...]:
    return worktrees.info(site, name).ports


def four(name: str) -> Spec:
    return Spec(name, ports=4)


# ── the choice ──


@pytest.mark.parametrize(
    ("used", "start", "expected"),
    [
        ((), 100, 100),
        ((), 104, 104),
        ((105,), 104, 106),
        ((104, 109), 104, 105),
        ((106,), 106, 100),  # after the end, from the beginning
        ((106, 101), 106, 102),
        ((101, 105, 109), 100, None),
        ((), 3, 100),  # a start outside of the range
        ((), 108, 100),
    ],
)
def test_w17_the_first_block_that_is_free_from_the_start_on(
    used: tuple[int, ...], start: int, expected: int | None
) -> None:
    block = choose_block(range(100, 110), 4, start, lambda port: port not in used)
    assert block == (Block(expected, 4) if expected else None)


@given(
    size=st.integers(0, 30),
    count=st.integers(1, 6),
    start=st.integers(95, 135),
    used=st.sets(st.integers(100, 130)),
)
def test_w17_a_block_is_found_exactly_if_there_is_one(
    size: int, count: int, start: int, used: set[int]
) -> None:
    ports = range(100, 100 + size)
    block = choose_block(ports, count, start, lambda port: port not in used)
    possible = [
        first
        for first in ports
        if first + count <= ports.stop and not used & set(range(first, first + count))
    ]
    assert (block.first in possible) if block else not possible


@given(low=st.integers(1, 60000), size=st.integers(1, 5000), count=st.integers(1, MOST_PORTS))
def test_w17_bases_begin_at_different_places_of_the_range(low: int, size: int, count: int) -> None:
    ports = range(low, low + size)
    starts = {place_to_start(ports, count, f"/home/{number}") for number in range(20)}
    assert all(start in ports for start in starts)
    assert len(starts) > 1 or size < 50 * count


def test_w17_the_variables_of_a_block() -> None:
    assert port_variables("amy", Block(20010, 3)) == {
        "BULLPEN_PORT_0": "20010",
        "BULLPEN_PORT_1": "20011",
        "BULLPEN_PORT_2": "20012",
        "PORT": "20010",
        "COMPOSE_PROJECT_NAME": "amy",
    }


def test_w17_compose_takes_every_project_name_and_no_two_are_the_same() -> None:
    plain = ["amy", "amy-2", "0_x"]
    assert [project_name(name) for name in plain] == plain
    odd = ["main.feature-a", "main-feature-a", "Main.feature-a", "-", "swarm~x", "é", "_a", "~"]
    names = [project_name(name) for name in odd]
    assert len(set(names)) == len(odd)
    assert all(PROJECT_NAME.fullmatch(name) for name in names), names


def test_w17_without_settings_the_library_uses_what_the_settings_say() -> None:
    assert Settings().worktrees.ports == DEFAULT_RANGE == range(20000, 30000)


@pytest.mark.parametrize(
    ("first", "count"),
    [(0, 0), (0, 4), (4, 0), (-1, 4), (1, MOST_PORTS + 1), (65533, 4), ("20000", 4), (20000, None)],
)
def test_w17_what_no_block_can_be_is_none(first: object, count: object) -> None:
    """A safety copy's record may have been written by an agent."""
    texts = dict.fromkeys(("name", "id", "repo", "branch", "base", "base_commit", "created_at"), "")
    text = json.dumps({**texts, "first_port": first, "port_count": count})
    assert from_json(text).ports is None


# ── a port that somebody uses ──


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", "::"])
@pytest.mark.parametrize("listens", [True, False])
def test_w17_a_port_that_any_program_uses_is_not_free(address: str, listens: bool) -> None:
    with own_range(1) as (port,):
        assert is_bindable(port)
        with listening(port, address, listens=listens):
            assert not is_bindable(port)
        assert is_bindable(port)


# ── the life of a block ──


def test_w17_a_worktree_has_its_block_for_its_life_and_no_other_has_it(blocks: Site) -> None:
    worktrees.create_many(blocks, [four("amy"), four("bob")])
    amy, bob = ports_of(blocks, "amy"), ports_of(blocks, "bob")
    assert len(amy) == len(bob) == 4
    assert set(amy).isdisjoint(bob)
    assert set(amy) | set(bob) <= set(blocks.port_range)
    assert worktrees.find_port_variables(blocks.base / "amy") == port_variables(
        "amy", Block(amy[0], 4)
    )
    # Used again, also while its own server runs, and whatever else comes and goes.
    with listening(amy[0]):
        worktrees.ensure(blocks, four("amy"))
    worktrees.create(blocks, four("cleo"))
    worktrees.remove(blocks, "bob")
    worktrees.ensure(worktrees.open_site(blocks.base / "amy", blocks.base), four("amy"))
    assert ports_of(blocks, "amy") == amy
    worktrees.create(blocks, four("dora"))
    assert ports_of(blocks, "dora") == bob, "what was removed is free again"


def test_w17_without_ports_there_are_none(site: Site) -> None:
    worktrees.create(site, Spec("amy"))
    assert ports_of(site, "amy") == ()
    assert worktrees.find_port_variables(site.base / "amy") == {}


def test_w17_a_range_without_a_free_block_is_refused_and_leaves_nothing(
    blocks: Site, failing: Callable[..., worktrees.WorktreeError]
) -> None:
    worktrees.create_many(blocks, [four("amy"), four("bob")])
    error = failing("NO_PORTS", worktrees.create_many, blocks, [four("cleo"), four("dora")])
    low, high = blocks.port_range[0], blocks.port_range[-1]
    assert f"no 4 ports in a row are free from {low} to {high}" in error.message
    assert "worktrees.port_range" in error.hint
    assert {entry.name for entry in worktrees.list_managed(blocks)} == {"amy", "bob"}
    assert refs(blocks) == {"main", "amy", "bob"}
    assert_healthy(blocks)
    worktrees.create(blocks, four("cleo"))


@pytest.mark.parametrize("count", [-1, MOST_PORTS + 1])
def test_w17_an_impossible_number_is_refused(
    site: Site, count: int, failing: Callable[..., worktrees.WorktreeError]
) -> None:
    failing("INVALID", worktrees.create, site, Spec("amy", ports=count))


def test_w17_ports_that_a_program_uses_are_passed_over(blocks: Site) -> None:
    low = blocks.port_range.start
    with listening(low + 3), listening(low + 7, "0.0.0.0"):
        worktrees.create(blocks, four("amy"))
    assert ports_of(blocks, "amy") == tuple(range(low + 8, low + 12))


@pytest.mark.parametrize("prunes", [True, False])
def test_w17_ports_of_a_worktree_that_was_deleted_by_hand_come_back(
    blocks: Site, prunes: bool
) -> None:
    worktrees.create_many(blocks, [four("amy"), four("bob"), four("cleo")])
    freed = ports_of(blocks, "bob")
    shutil.rmtree(blocks.base / "bob")
    if prunes:
        git(blocks.base / "amy", "worktree", "prune")
    worktrees.create(blocks, four("dora"))
    assert ports_of(blocks, "dora") == freed


def test_w17_a_directory_that_comes_back_gets_other_ports_than_who_has_its_old_ones(
    blocks: Site,
) -> None:
    worktrees.create_many(blocks, [four("amy"), four("bob")])
    (blocks.base / "bob").rename(blocks.base.parent / "away")
    worktrees.create_many(blocks, [four("cleo"), four("dora")])
    worktrees.remove(blocks, "amy")
    (blocks.base.parent / "away").rename(blocks.base / "bob")
    worktrees.ensure(blocks, four("bob"))
    blocks_now = [ports_of(blocks, name) for name in ("bob", "cleo", "dora")]
    assert len({port for ports in blocks_now for port in ports}) == 12


@pytest.mark.parametrize("is_taken", [False, True])
def test_w17_a_removal_that_is_undone_has_a_block_again(blocks: Site, is_taken: bool) -> None:
    path = worktrees.create(blocks, four("amy"))
    before = ports_of(blocks, "amy")
    (path / "new.txt").write_text("work\n")
    worktrees.remove(blocks, "amy", force=True)
    if is_taken:
        worktrees.create_many(blocks, [four("bob"), four("cleo")])
        assert before in (ports_of(blocks, "bob"), ports_of(blocks, "cleo"))
    worktrees.restore(blocks, "amy")
    again = ports_of(blocks, "amy")
    assert len(again) == 4
    assert (again == before) is not is_taken


def test_w17_a_branch_that_is_checked_out_again_has_a_block_again(blocks: Site) -> None:
    path = worktrees.create(blocks, four("amy"))
    before = ports_of(blocks, "amy")
    commit(path, "work.txt")
    worktrees.remove(blocks, "amy")  # its branch and its record stay
    worktrees.ensure(blocks, four("amy"))
    assert ports_of(blocks, "amy") == before
    worktrees.remove(blocks, "amy")
    worktrees.ensure(blocks, Spec("amy"))
    assert ports_of(blocks, "amy") == ()


def test_w17_a_worktree_that_is_there_gets_ports_when_somebody_needs_them(blocks: Site) -> None:
    worktrees.create(blocks, Spec("amy"))
    born = find_record(blocks, "amy")
    worktrees.ensure(blocks, four("amy"))
    first = ports_of(blocks, "amy")
    record = find_record(blocks, "amy")
    assert born and record
    assert dataclasses.replace(record, first_port=0, port_count=0) == born
    worktrees.reserve_ports(blocks, "amy", 2)
    assert ports_of(blocks, "amy") == first, "fewer are enough"
    worktrees.reserve_ports(blocks, "amy", 5)
    assert len(ports_of(blocks, "amy")) == 5
    worktrees.reserve_ports(blocks, "nobody", 5)
    assert find_record(blocks, "nobody") is None


def test_w17_a_worktree_that_a_person_made_with_git_gets_ports_and_keeps_its_branch(
    blocks: Site, repo: Path
) -> None:
    blocks.base.mkdir()
    git(repo, "worktree", "add", "-q", "-b", "mine", str(blocks.base / "amy"))
    worktrees.ensure(blocks, four("amy"))
    assert len(ports_of(blocks, "amy")) == 4
    worktrees.remove(blocks, "amy")
    assert refs(blocks) == {"main", "mine"}


def test_w17_a_setup_knows_the_ports(blocks: Site) -> None:
    path = worktrees.create(blocks, Spec("amy", ports=4, setup="echo $PORT $BULLPEN_PORT_3 > .env"))
    ports = ports_of(blocks, "amy")
    assert (path / ".env").read_text() == f"{ports[0]} {ports[3]}\n"


# ── two at once ──


def test_w17_two_homes_never_have_a_port_that_one_of_them_uses(
    blocks: Site, tmp_path: Path
) -> None:
    other = worktrees.open_site(
        make_repo(tmp_path / "other"), tmp_path / "base2", port_range=blocks.port_range
    )
    worktrees.create(blocks, four("amy"))
    with listening(ports_of(blocks, "amy")[2]):
        worktrees.create_many(other, [four("bob"), Spec("cleo", ports=1)])
        theirs = {*ports_of(other, "bob"), *ports_of(other, "cleo")}
    assert ports_of(blocks, "amy")[2] not in theirs


def test_w17_worktrees_of_a_repository_in_another_base_keep_theirs(
    blocks: Site, tmp_path: Path
) -> None:
    """`worktrees.base` was changed, or two homes have one repository."""
    moved = dataclasses.replace(blocks, base=tmp_path / "base2")
    worktrees.create_many(blocks, [four("amy"), four("bob")])
    worktrees.create(moved, four("cleo"))
    every = [ports_of(site, name) for site, name in ((blocks, "amy"), (blocks, "bob"))]
    assert len({*every[0], *every[1], *ports_of(moved, "cleo")}) == 12


# What one of the processes does: makes a worktree, again and again, and says which ports it has.
WORKER = """
import json, sys
from pathlib import Path
from bullpen import worktrees
from bullpen.worktrees import Spec

repo, base, low, high, name = sys.argv[1:]
site = worktrees.open_site(Path(repo), Path(base), port_range=range(int(low), int(high)))
print("ready", flush=True)
sys.stdin.readline()
for number in range(3):
    worktrees.create(site, Spec(f"{name}-{number}", ports=2))
"""


@pytest.mark.slow
@pytest.mark.storm
def test_w17_many_processes_at_once_get_different_ports(tmp_path: Path) -> None:
    """Of two repositories in one base, in a range that they fill: all are served."""
    repos = [make_repo(tmp_path / "one"), make_repo(tmp_path / "two")]
    with own_range(24) as ports:
        bounds = (str(ports.start), str(ports.stop))
        workers = [
            subprocess.Popen(
                [sys.executable, "-c", WORKER, repos[n % 2], tmp_path / "base", *bounds, f"w{n}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for n in range(4)
        ]
        for worker in workers:
            assert worker.stdout
            assert worker.stdout.readline() == "ready\n"
        for worker in workers:  # all at once
            assert worker.stdin
            worker.stdin.write("\n")
            worker.stdin.flush()
        for worker in workers:
            worker.communicate(timeout=120)
            assert worker.returncode == 0
        sites = [worktrees.open_site(repo, tmp_path / "base") for repo in repos]
        given = [
            port
            for site in sites
            for entry in worktrees.list_managed(site)
            for port in ports_of(site, entry.name)
        ]
        assert sorted(given) == list(ports)


# ── crashes ──


@pytest.mark.slow
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.storm)])
def test_w17_a_reservation_killed_before_effects_loses_nothing(blocks: Site, every: int) -> None:
    """Half of one is never seen, and the next call has the worktree's block."""
    worktrees.create_many(blocks, [Spec("amy"), four("bob")])
    record = blocks.records / "amy.json"
    before, deaths = record.read_text(), 0
    for step in range(1, 500, every):
        record.write_text(before)
        died = died_at_effect(step, partial(worktrees.ensure, blocks, four("amy")))
        seen = Record(**json.loads(record.read_text())).ports
        worktrees.ensure(blocks, four("amy"))
        ports = ports_of(blocks, "amy")
        assert len(ports) == 4
        assert set(ports).isdisjoint(ports_of(blocks, "bob"))
        assert seen in (None, Block(ports[0], 4)), "what it had got it keeps"
        if not died:
            break
        deaths += 1
    else:
        raise AssertionError("never got through")
    assert deaths > 20 // every
