"""Limits: which can be had, and that they hold."""

import os
from pathlib import Path

import pytest

from bullpen.errors import BullpenError
from bullpen.sandboxes import limits
from bullpen.sandboxes.base import Policy
from bullpen.sandboxes.limits import Cgroup, Limits
from tests.sandboxes.machine import Machine, as_user
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def machine(root: Path, cgroup: str, mounts: list[tuple[str, str, str, Path]]) -> Path:
    """Our directory in /proc: type, options, root and point of each mount."""
    proc = root / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text(cgroup)
    lines = [
        f"30 20 0:2{number} {inner} {point} rw,relatime shared:1 - {kind} {kind} rw,{options}"
        for number, (kind, options, inner, point) in enumerate(mounts)
    ]
    (proc / "mountinfo").write_text("\n".join(["20 1 0:1 / / rw - ext4 /dev/vda rw", *lines]))
    return proc


def group(path: Path, handed_on: str = "") -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "cgroup.procs").touch()
    (path / "cgroup.subtree_control").write_text(handed_on)
    return path


def test_x2_version_1_gives_a_group_in_our_own(tmp_path: Path) -> None:
    pids, memory = tmp_path / "pids", tmp_path / "memory"
    group(pids)
    own = group(memory / "theirs" / "ours")
    mounts = [("cgroup", "pids", "/", pids), ("cgroup", "memory", "/", memory)]
    proc = machine(tmp_path, "8:pids:/\n4:memory:/theirs/ours\n0::/\n", mounts)
    found = limits.find(proc)
    assert found.pids == Cgroup("pids", 1, pids)
    assert found.memory == Cgroup("memory", 1, own)


def test_x2_version_2_gives_a_group_beside_ours_where_controllers_are_handed_on(
    tmp_path: Path,
) -> None:
    point = tmp_path / "unified"
    group(point, "cpu memory pids")
    app = group(point / "user.slice" / "app.slice", "memory pids")
    group(app / "shell.scope")
    proc = machine(
        tmp_path, "0::/user.slice/app.slice/shell.scope\n", [("cgroup2", "nsdelegate", "/", point)]
    )
    found = limits.find(proc)
    assert found.pids == Cgroup("pids", 2, app)
    assert found.memory == Cgroup("memory", 2, app)
    assert str(found) == "processes by cgroup v2, memory by cgroup v2"


def test_x2_a_container_sees_a_part_of_the_tree(tmp_path: Path) -> None:
    point = tmp_path / "pids"
    group(point)
    mounts = [("cgroup", "pids", "/docker/abc", point)]
    proc = machine(tmp_path, "8:pids:/docker/abc\n", mounts)
    assert limits.find(proc).pids == Cgroup("pids", 1, point)


def test_x2_without_any_it_says_so(tmp_path: Path) -> None:
    point = tmp_path / "unified"
    group(point, "hugetlb")
    proc = machine(tmp_path, "0::/\n", [("cgroup2", "", "/", point)])
    found = limits.find(proc)
    assert (found.pids, found.memory) == (None, None)
    assert found.is_counted == (os.getuid() != 0)
    assert "memory not limited" in str(found)
    assert str(Limits(None, None, is_counted=False)).startswith("processes not limited")
    assert limits.find(tmp_path / "none").pids is None


def test_x2_a_group_is_made_limited_entered_and_removed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    found = Limits(Cgroup("pids", 1, tmp_path), Cgroup("memory", 2, tmp_path), is_counted=True)
    policy = Policy(
        cwd=tmp_path / "work",
        home=home,
        session=home / "sessions" / "amy",
        person=tmp_path / "person",
        sockets=home / "sessions" / "amy" / "api",
        processes=77,
        memory_bytes=1 << 30,
    )
    limits.prepare(policy, found)
    (entry, _) = limits.entries(policy, found)
    assert (entry.parent / "pids.max").read_text() == "77"
    assert (entry.parent / "memory.max").read_text() == str(1 << 30)
    for file in entry.parent.iterdir():
        file.unlink()  # the kernel's groups have none that count
    assert limits.remove_ended(home, [policy.session], found) == []
    assert limits.remove_ended(tmp_path / "another", [], found) == []
    assert limits.remove_ended(home, [], found) == [entry.parent]


def test_x3_a_limit_that_cannot_be_set_is_an_error(tmp_path: Path) -> None:
    found = Limits(Cgroup("pids", 1, tmp_path / "gone"), None, is_counted=True)
    policy = Policy(tmp_path, tmp_path, tmp_path / "s", tmp_path, tmp_path / "s" / "api")
    with pytest.raises(BullpenError, match="cannot limit"):
        limits.prepare(policy, found)


def test_x3_a_limit_that_cannot_be_entered_ends_the_start(machine: Machine) -> None:
    pids = as_user(machine.uid, limits.find).pids
    if pids is None:
        pytest.skip("this user has no groups")
    wrapped = machine.wrap(["touch", "started"], machine.policy())
    assert limits.remove_ended(machine.home, [])
    done = machine.start(wrapped)
    _, said = done.communicate(timeout=60)
    assert done.returncode == 125
    assert b"the sandbox cannot start" in said
    assert not (machine.cwd / "started").exists()


def test_x2_groups_of_runs_that_ended_are_removed_and_of_those_that_run_are_not(
    machine: Machine,
) -> None:
    pids = as_user(machine.uid, limits.find).pids
    if pids is None:
        pytest.skip("this user has no groups")
    child = machine.start(machine.wrap(["sh", "-c", "echo ready; read x"], machine.policy()))
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    assert limits.remove_ended(machine.home, []) == []  # the kernel refuses
    child.communicate(b"\n", timeout=60)
    wait_until(lambda: bool(limits.remove_ended(machine.home, [])))
    assert limits.remove_ended(machine.home, []) == []


def test_x2_memory_is_limited(machine: Machine) -> None:
    found = as_user(machine.uid, limits.find).memory
    if found is None:
        pytest.skip("this user has no groups for memory")
    if found.version == 1 and not found.parent.is_mount():
        pytest.skip("the group for memory that we are in is of whoever started us")
    script = "head -c 300000000 /dev/zero | tail -c 299999999 >/dev/null"
    policy = machine.policy(memory_bytes=64 << 20)
    assert machine.run(["sh", "-ec", script], policy).returncode != 0
    assert machine.run(["sh", "-ec", script], policy, without={"limits"}).returncode == 0
