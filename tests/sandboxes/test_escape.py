"""Getting out of the real sandbox: every attempt is blocked, and works without the line that stops
it. What is tried is in attacks.py.
"""

import contextlib
import ctypes
import functools
import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bullpen.errors import BullpenError
from bullpen.sandboxes import limits
from bullpen.sandboxes.base import Network, Policy
from bullpen.sandboxes.bounds import normalize
from bullpen.sandboxes.bubblewrap import arguments, every_line
from bullpen.worktrees.git import Repository
from bullpen.worktrees.unfinished import set_aside_commands
from tests.ports import reserved_port
from tests.processes import children_of
from tests.sandboxes import attacks
from tests.sandboxes.attacks import ATTACKS, SECRET, Attack
from tests.sandboxes.machine import PYTHON, Machine, as_user
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

libc = ctypes.CDLL(None, use_errno=True)
MODES = ("pipes", "terminal")
KEPT = contextlib.ExitStack()


def battery_policy(machine: Machine, **more: Any) -> Policy:
    guarded = (".claude", ".mcp.json", "deep/guarded")
    return machine.policy(
        network=Network(*reserved_ports()),
        read_only=tuple(machine.cwd / name for name in guarded),
        hidden=(machine.cwd / "deep/other/.bullpen", machine.cwd / "deep/config"),
        **more,
    )


@functools.cache
def reserved_ports() -> tuple[int, int]:
    """Without their line they are listened to on the machine's own loopback. One pair for all
    tests of a process, until it ends."""
    return KEPT.enter_context(reserved_port()), KEPT.enter_context(reserved_port())


# ── what is outside ──────────────────────────────────────────────────────────


@contextlib.contextmanager
def surroundings(machine: Machine) -> Iterator[dict[str, Any]]:
    """What an attempt may aim at, beside files: a process, a port, memory, a key, a terminal."""
    with contextlib.ExitStack() as stack:
        env = {**machine.env, "HUB_ONLY": SECRET}
        seconds = 10**8 + int.from_bytes(os.urandom(3))
        victim = subprocess.Popen(["sleep", str(seconds)], env=env, **machine.identity)
        file = stack.enter_context(tempfile.NamedTemporaryFile(dir="/var/tmp"))
        file.write(SECRET.encode())
        file.flush()
        os.fchown(file.fileno(), machine.uid, machine.uid)
        stack.callback(victim.wait)
        stack.callback(victim.kill)
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        name = f"bullpen-{os.urandom(6).hex()}"
        abstract.bind(f"\0{name}")
        abstract.listen(100)
        master, slave = pty.openpty()
        os.fchown(slave, machine.uid, machine.uid)
        stack.callback(os.close, slave)
        stack.callback(os.close, master)
        key = int.from_bytes(os.urandom(3))
        stack.callback(_remove_memory, _make_memory(machine, key))
        own_key = f"bullpen-{os.urandom(6).hex()}"
        has_key = libc.syscall(248, b"user", own_key.encode(), SECRET.encode(), len(SECRET), -4)
        if has_key > 0:
            stack.callback(libc.syscall, 250, 9, has_key, -4)  # unlinked again
        # A session's keyring, with the user's in it, as a login makes one.
        libc.syscall(250, 1, None)
        libc.syscall(250, 8, -4, -3)
        is_in_session = (
            libc.syscall(248, b"user", own_key.encode(), SECRET.encode(), len(SECRET), -3) > 0
        )
        pids = limits.find().pids
        conditions = {
            "keyring": has_key > 0,
            "session keyring": is_in_session,
            "sockets to the host": _can_open(40),
            "pids cgroup": pids is not None and pids.version == 1,
            "keys of the system": machine.uid == 0 and any(Path("/etc/ssl").glob("private/*")),
        }
        yield {
            **{name: str(getattr(machine, name)) for name in NAMES},
            "elsewhere": str(machine.root / "elsewhere"),
            "victim": victim.pid,
            "victim_seconds": seconds,
            "var_tmp": file.name,
            "port": tcp.getsockname()[1],
            "abstract": name,
            "terminal": os.ttyname(slave),
            "shm_key": key,
            "key": own_key,
            "uts": str(Path("/proc/self/ns/uts").readlink()),
            "pids": str(pids.parent) if pids and pids.version == 1 else "",
            "hosts": Path("/etc/hosts").stat().st_ino,
            "has": [name for name, has in conditions.items() if has],
        }


def _can_open(family: int) -> bool:
    try:
        socket.socket(family, socket.SOCK_STREAM).close()
    except OSError:
        return False
    return True


NAMES = ("person", "home", "session", "cwd", "programs", "common", "admin", "pwned")


def _make_memory(machine: Machine, key: int) -> int:
    identifier = libc.shmget(key, 4096, 0o1000 | 0o600)
    assert identifier >= 0
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(identifier, None, 0)
    ctypes.memmove(address, SECRET.encode(), len(SECRET))
    libc.shmdt(ctypes.c_void_p(address))
    if os.getuid() == 0:
        status = ctypes.create_string_buffer(256)
        libc.shmctl(identifier, 2, status)
        # struct ipc_perm begins with key, uid, gid.
        ctypes.memmove(ctypes.byref(status, 4), machine.uid.to_bytes(4, "little") * 2, 8)
        assert libc.shmctl(identifier, 1, status) == 0
    return identifier


def _remove_memory(identifier: int) -> None:
    libc.shmctl(identifier, 0, None)


def outside_files(machine: Machine) -> dict[str, bytes]:
    """All that an agent must not change; what it may is left out."""
    may = re.compile(
        r"home/sessions/amy/(api|walls)|repo/\.git/bullpen/private/amy/(?!info/)"
        r"|home/worktrees/amy/(?!\.git$|\.claude|\.mcp|deep)"
        # git outside writes them, too
        r"|repo/\.git/(worktrees/\w+/)?(index|HEAD|ORIG_HEAD)$"
    )
    found = {}
    for directory, _, files in os.walk(machine.root):
        for file in files:
            path = Path(directory, file)
            name = str(path.relative_to(machine.root))
            if not may.match(name) and path.is_file():
                found[name] = path.read_bytes()
    return found


def use_git_outside(machine: Machine) -> None:
    """What a person does on any day, carelessly: git finds its directories by itself."""
    for where in (machine.repo, machine.cwd):
        machine.git("status", cwd=where)
        machine.git("diff", cwd=where)
        machine.git("checkout", "-q", "--detach", cwd=where)
        machine.git("log", "--oneline", cwd=where)
    machine.git("worktree", "list")


# ── running attempts ─────────────────────────────────────────────────────────


def attempt(
    machine: Machine,
    target: dict[str, Any],
    names: list[str],
    *,
    mode: str = "pipes",
    without: frozenset[str] = frozenset(),
    policy: Policy | None = None,
    between: Any = None,
) -> dict[str, dict[str, Any]]:
    """Inside, in one sandbox; `between` is called between two rounds of all of them."""
    results = machine.cwd / "results.json"
    results.unlink(missing_ok=True)
    shutil.copy(attacks.__file__, machine.cwd / "attacks.py")
    parameters = machine.cwd / "parameters.json"
    parameters.write_text(json.dumps({**target, "turns": 2 if between else 1}))
    words = [PYTHON, "attacks.py", str(parameters), str(results), *names]
    policy = policy or battery_policy(machine, is_terminal=mode == "terminal")
    machine.own()
    env = {"SOME_TOKEN": SECRET}
    wrapped = machine.wrap(words, policy, without=without, env=env)
    master = -1
    if mode == "terminal":
        child, master = machine.start_in_terminal(wrapped)
    else:
        child = machine.start(wrapped)
    try:
        if between:
            wait_until(lambda: (machine.cwd / "waiting").exists() or child.poll() is not None)
            between()
            (machine.cwd / "go").touch()
        if mode == "terminal":
            said = b"in a terminal"
            child.wait(timeout=60)
        else:
            said = b"".join(child.communicate(timeout=60))
    finally:
        child.kill()
        child.wait()
        if master >= 0:
            os.close(master)
    assert results.exists() and results.read_text(), said
    return json.loads(results.read_text())


def worked(
    machine: Machine,
    one: Attack,
    result: dict[str, Any],
    before: dict[str, bytes],
    target: dict[str, Any],
) -> bool:
    """Whether it got what it wanted."""
    match one.kind:
        case "read":
            return result.get("got") == SECRET
        case "act":
            return result.get("got") is True
        case "write":
            return outside_files(machine) != before
        case "run":
            use_git_outside(machine)
            return machine.pwned.exists()
        case "kill":
            return not is_alive(target["victim"])
    raise AssertionError(one.kind)


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"


def able(machine: Machine, target: dict[str, Any]) -> list[Attack]:
    """The attempts that this user could make with success if there were no walls."""
    return [
        one
        for one in ATTACKS.values()
        if not (one.root_only and machine.uid != 0)
        and (not one.needs or one.needs in target["has"])
    ]


@pytest.mark.few(3)
@pytest.mark.parametrize("name", ATTACKS)
def test_x5_each_attempt_works_without_the_lines_that_stop_it_and_is_blocked_with_them(
    machine: Machine, name: str
) -> None:
    one = ATTACKS[name]
    with surroundings(machine) as target:
        if one not in able(machine, target):
            pytest.skip("this user could not do it without walls, either")
        machine.wrap(["true"], battery_policy(machine))  # prepares
        before = outside_files(machine)
        policy = battery_policy(machine)
        if one.lines & {"root", "pid"}:
            # Without a relay and a git: their files would be made on the machine, and stay behind.
            policy = replace(policy, network=None, git=None)
        blocked = attempt(machine, target, [name], policy=policy)[f"{name}/0"]
        assert not worked(machine, one, blocked, before, target), blocked
        without = one.lines | one.also
        opened = attempt(machine, target, [name], policy=policy, without=without)[f"{name}/0"]
        assert worked(machine, one, opened, before, target), opened


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.storm
def test_x5_all_attempts_are_blocked_also_while_somebody_outside_uses_git(
    machine: Machine, mode: str
) -> None:
    def use_the_repository() -> None:
        machine.git("config", "user.nickname", "somebody")
        machine.git("branch", "-D", "spare")
        machine.git("status")
        machine.git("status", cwd=machine.cwd)
        assert "nickname" in (machine.common / "config").read_text()
        assert "spare" not in machine.git("branch")

    with surroundings(machine) as target:
        use_git_outside(machine)
        machine.wrap(["true"], battery_policy(machine))  # prepares
        before = outside_files(machine)
        found = attempt(machine, target, list(ATTACKS), mode=mode, between=use_the_repository)
        assert len(found) == 2 * len(ATTACKS)
        got = {name: value["got"] for name, value in found.items() if value.get("got")}
        assert got == {}
        assert is_alive(target["victim"])
        after = outside_files(machine)
        ours = {"repo/.git/config", "repo/.git/packed-refs", "repo/.git/logs/refs/heads/spare"}
        assert {name for name in before | after if before.get(name) != after.get(name)} <= ours
        for name in ours & set(after):
            assert b"evil" not in after[name]
            assert b"planted" not in after[name]
        use_git_outside(machine)
        assert not machine.pwned.exists()


@pytest.mark.few(1)
def test_x5_a_home_in_the_working_directory_is_out_of_reach(machine: Machine) -> None:
    policy = battery_policy(machine)
    policy = machine.policy(
        cwd=machine.root,
        writable=(),
        git=None,
        network=policy.network,
        programs=(machine.programs,),
    )
    names = [name for name, one in ATTACKS.items() if one.lines == {"home"}]
    assert len(names) >= 9
    with surroundings(machine) as target:
        target = {**target, "cwd": str(machine.root)}
        before = outside_files(machine)

        def run(without: frozenset[str]) -> dict[str, dict[str, Any]]:
            shutil.copy(attacks.__file__, machine.root / "attacks.py")
            (machine.root / "parameters.json").write_text(json.dumps(target))
            results = machine.root / "results.json"
            results.unlink(missing_ok=True)
            machine.own()
            words = [PYTHON, "attacks.py", "parameters.json", "results.json", *names]
            done = machine.run(words, policy, without=without)
            assert results.exists(), done
            return json.loads(results.read_text())

        for name, result in run(frozenset()).items():
            assert not result.get("got"), (name, result)
        assert (machine.home / "claude-config/default/.claude.json").read_bytes() == before[
            "home/claude-config/default/.claude.json"
        ]
        # It cannot be moved away, either, to put another in its place.
        assert (
            "busy"
            in machine.run(["mv", str(machine.home), "moved"], policy).stderr.decode().lower()
        )
        for name, result in run(frozenset({"home"})).items():
            assert result.get("got") or ATTACKS[name.split("/")[0]].kind == "write", (name, result)


def test_x5_namespaces_within_the_sandbox_open_nothing(machine: Machine) -> None:
    with surroundings(machine) as target:
        machine.wrap(["true"], battery_policy(machine))
        before = outside_files(machine)
        result = attempt(machine, target, ["nested"])["nested/0"]
        # A machine that lets nobody make such a namespace would be fine as well.
        tried = result.get("got") or {"unshare": f"blocked: {result['error']}"}
        assert all(str(value).startswith("blocked") for value in tried.values()), tried
        assert outside_files(machine) == before
        # With the capabilities outside such a namespace the same calls work: see `remount`.


# ── links between two starts ─────────────────────────────────────────────────


def with_path(machine: Machine, kind: str) -> tuple[Policy, str]:
    """A policy that names a directory in the worktree, and how that is read inside."""
    path = machine.cwd / "deep" / "cache"
    if kind == "cwd":
        return machine.policy(cwd=path), "cat id_ed25519"
    if kind == "moved cwd":  # of an agent without a worktree
        return machine.policy(cwd=path, writable=(), git=None, real_cwd=path), "cat id_ed25519"
    if kind == "programs":  # as an entry of PATH that is a link of the person's
        link = machine.person / "tools"
        link.symlink_to(path)
        return machine.policy(programs=(link,)), f"cat {link}/id_ed25519"
    more = {"writable": (machine.cwd, path)} if kind == "writable" else {"read_only": (path,)}
    return machine.policy(**more), f"cat {path}/id_ed25519"


@pytest.mark.parametrize("kind", ["writable", "read-only", "cwd", "moved cwd", "programs"])
@pytest.mark.few(1)
def test_x5_a_link_that_an_agent_left_chooses_nothing_at_the_next_start(
    machine: Machine, kind: str
) -> None:
    """The line `planted`."""
    policy, read = with_path(machine, kind)
    machine.shell("mkdir deep/cache; echo harmless >deep/cache/id_ed25519")
    if kind != "programs":
        assert machine.shell(read, policy) == "harmless\n"
    machine.shell(f"rm -r deep/cache; ln -s {machine.person}/.ssh deep/cache")
    if kind == "programs":  # passed over, as whatever cannot be shown of PATH
        assert SECRET.encode() not in machine.run(["sh", "-c", read], policy).stdout
        return
    with pytest.raises(BullpenError, match="leads to"):
        machine.run(["sh", "-c", read], policy)
    assert machine.shell(read, policy, without={"planted"}) == SECRET


@pytest.mark.parametrize("kind", ["writable", "read-only", "cwd", "moved cwd"])
@pytest.mark.few(1)
def test_x5_nor_one_that_another_agent_puts_there_between_the_check_and_the_mount(
    machine: Machine, kind: str
) -> None:
    policy, read = with_path(machine, kind)
    machine.shell("mkdir deep/cache")
    checked = machine.wrap(["sh", "-c", read], policy)
    unchecked = machine.wrap(["sh", "-c", read], policy, without={"planted"})
    machine.shell(f"mv deep/cache deep/old; ln -s {machine.person}/.ssh deep/cache")
    said = machine.start(checked).communicate(timeout=60)
    assert SECRET.encode() not in b"".join(said)
    if kind == "moved cwd":
        # bubblewrap itself mounts nothing on a link; one further up it follows.
        assert b"cannot start: a directory was replaced just now" in said[1]
        assert machine.start(unchecked).communicate(timeout=60)[0] == SECRET.encode()
    # The link may be gone again when bubblewrap gets there.
    machine.shell("rm deep/cache; mkdir deep/cache")
    said = machine.start(checked).communicate(timeout=60)
    assert b"cannot start: a directory was replaced just now" in said[1]


def test_x5_a_writable_path_cannot_be_moved_with_what_is_above_it(machine: Machine) -> None:
    machine.shell("mkdir -p one/two")
    policy = machine.policy(writable=(machine.cwd, machine.cwd / "one" / "two"))
    for name in ("one", "one/two"):
        done = machine.run(["mv", name, "moved"], policy)
        assert b"busy" in done.stderr.lower()
    assert machine.shell("mv one moved && ls", policy, without={"pins", "writable"})


def test_x3_a_writable_path_that_is_missing_is_refused_with_words(machine: Machine) -> None:
    with pytest.raises(BullpenError, match=r"cannot show .*/missing: No such file"):
        machine.run(["true"], machine.policy(writable=(machine.cwd, machine.cwd / "missing")))


# ── what is left behind ──────────────────────────────────────────────────────

HALF_DONE = """
echo '#!/bin/sh' >evil.sh; echo 'touch {pwned}' >>evil.sh; chmod +x evil.sh
GIT_SEQUENCE_EDITOR="sed -i '1i break'" git rebase -q -i --exec "$PWD/evil.sh" HEAD~1 || true
test -d {admin}/rebase-merge
"""


def test_x5_a_rebase_that_an_agent_left_half_done_runs_nothing(machine: Machine) -> None:
    """It stays in the agent's own git. The line `unfinished`, for one that has none: what is taken
    away when a sandboxed program has ended."""
    machine.shell("git commit -q --allow-empty -m One")
    machine.shell(HALF_DONE.format(pwned=machine.pwned, admin=machine.admin))
    assert "no rebase in progress" in machine.git("rebase", "--continue", cwd=machine.cwd).lower()
    machine.bring_over()
    assert "no rebase in progress" in machine.git("rebase", "--continue", cwd=machine.cwd).lower()
    copy = machine.root / "copy"
    left = machine.store.git / "worktrees" / machine.store.id
    for to in (copy, machine.admin):  # as it was left by agents of before
        shutil.copytree(left, to, dirs_exist_ok=True)
    machine.own()
    repo = Repository(machine.admin, machine.common, machine.cwd)
    (moved,) = as_user(machine.uid, lambda: set_aside_commands(repo, machine.admin))
    assert b"evil.sh" in (moved / "git-rebase-todo").read_bytes()  # for the person to look at
    assert "no rebase in progress" in machine.git("rebase", "--continue", cwd=machine.cwd).lower()
    assert not machine.pwned.exists()
    # Without it the same command of a person runs what the agent wrote.
    shutil.copytree(copy, machine.admin, dirs_exist_ok=True)
    machine.own()
    machine.git("rebase", "--continue", cwd=machine.cwd)
    assert machine.pwned.exists()


# ── terminals ────────────────────────────────────────────────────────────────


def test_x5_nothing_is_typed_into_a_terminal_that_is_shared(machine: Machine) -> None:
    if Path("/proc/sys/dev/tty/legacy_tiocsti").read_text().strip() != "1":
        pytest.skip("this kernel lets nobody type for others")

    def typed(without: frozenset[str]) -> tuple[bytes, bytes]:
        """On pipes, but started from a terminal that somebody else reads."""
        master, slave = pty.openpty()
        os.fchown(slave, machine.uid, machine.uid)
        script = (
            "import sys; sys.path.insert(0, '.'); import attacks; attacks.type_into_the_terminal()"
        )
        shutil.copy(attacks.__file__, machine.cwd / "attacks.py")
        wrapped = machine.wrap([PYTHON, "-c", script], battery_policy(machine), without=without)

        def take() -> None:
            import fcntl
            import termios

            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        child = machine.start(wrapped, preexec_fn=take, pass_fds=(slave,))
        _, said = child.communicate(timeout=60)
        os.set_blocking(slave, False)
        try:
            got = os.read(slave, 100)
        except BlockingIOError:
            got = b""
        os.close(slave)
        os.close(master)
        return got, said

    assert typed(frozenset({"terminal"}))[0] == b"evil\n"
    got, said = typed(frozenset())
    assert got == b""
    assert b"the sandbox cannot start" in said


def test_x5_in_a_terminal_of_its_own_it_types_for_itself_alone(machine: Machine) -> None:
    script = (
        "import sys; sys.path.insert(0, '.'); import attacks; attacks.type_into_the_terminal();"
        "open('heard', 'w').write(input())"
    )
    shutil.copy(attacks.__file__, machine.cwd / "attacks.py")
    policy = battery_policy(machine, is_terminal=True)
    if Path("/proc/sys/dev/tty/legacy_tiocsti").read_text().strip() != "1":
        pytest.skip("this kernel lets nobody type for others")
    child, master = machine.start_in_terminal(machine.wrap([PYTHON, "-c", script], policy))
    child.wait(timeout=60)
    os.close(master)
    assert (machine.cwd / "heard").read_text() == "evil"


# ── limits ───────────────────────────────────────────────────────────────────


@pytest.mark.storm
def test_x5_a_fork_bomb_is_held(machine: Machine) -> None:
    if machine.uid == 0 and limits.find().pids is None:
        pytest.skip("there is no limit for root here, and doctor says so")
    with surroundings(machine) as target:
        target["processes"] = 60
        policy = battery_policy(machine, processes=60)
        held = attempt(machine, target, ["fork_bomb"], policy=policy)["fork_bomb/0"]["got"]
        assert 20 < held < 60
        free = attempt(
            machine, target, ["fork_bomb"], policy=policy, without=frozenset({"limits"})
        )["fork_bomb/0"]["got"]
        assert free == 120


@pytest.mark.few(1)
def test_x5_processes_of_others_do_not_count(machine: Machine) -> None:
    """A limit by user would count those of all agents, and of the person."""
    crowd = [subprocess.Popen(["sleep", "60"], **machine.identity) for _ in range(40)]
    try:
        with surroundings(machine) as target:
            target["processes"] = 40
            policy = battery_policy(machine, processes=40)
            assert attempt(machine, target, ["fork_bomb"], policy=policy)["fork_bomb/0"]["got"] > 20
    finally:
        for one in crowd:
            one.kill()
            one.wait()


# ── its end ──────────────────────────────────────────────────────────────────


def test_x2_it_dies_with_whoever_started_it(machine: Machine) -> None:
    def survives(without: frozenset[str]) -> bool:
        beat = machine.cwd / "beat"
        beat.unlink(missing_ok=True)
        script = "while :; do date +%N >beat; sleep 0.02; done"
        wrapped = machine.wrap(["sh", "-c", script], machine.policy(), without=without)
        reader, writer = os.pipe()
        holder = os.fork()
        if holder == 0:
            os.close(reader)
            child = machine.start(wrapped)
            os.write(writer, str(child.pid).encode())
            signal.pause()
            os._exit(0)
        sandbox = int(os.read(reader, 20))
        try:
            wait_until(beat.exists)
        finally:
            os.kill(holder, signal.SIGKILL)
            os.waitpid(holder, 0)
            os.close(reader)
            os.close(writer)
        if without:
            last = beat.read_text()
            wait_until(lambda: beat.read_text() not in ("", last))
            for pid in (sandbox, *children_of(sandbox)):
                os.kill(pid, signal.SIGKILL)
            return True
        wait_until(lambda: not _runs(sandbox))
        return False

    assert not survives(frozenset())
    assert survives(frozenset({"die-with-parent"}))


def _runs(pid: int) -> bool:
    try:
        return is_alive(pid)
    except FileNotFoundError:
        return False


# ── the table ────────────────────────────────────────────────────────────────

# Lines that let something in; nothing is stopped by them.
OPENINGS = {
    *(
        "cwd",
        "api-sockets",
        "writable",
        "relay",
    ),
    *("links", "git-in-use", "git-own-objects"),
}
ELSEWHERE = {
    "terminal",
    "limits",
    "die-with-parent",
    "planted",
    "unfinished",
    "git-borrowed",
}  # tests of their own, above or with the private gits
HIDES_NAMES_ONLY = {"cgroup"}
DEPENDS = {"kernel", "keys", "calls"}  # on the user, on the machine


def test_x5_the_table_of_the_documentation_has_every_line_and_every_attempt(
    machine: Machine,
) -> None:
    text = (Path(__file__).parents[2] / "docs" / "sandbox.md").read_text()
    table = {
        match[1]: set(re.findall(r"`(\w+)`", match[2]))
        for match in re.finditer(r"^\| `([\w./-]+)` \|[^|]*\| ([^|]*) \|$", text, re.MULTILINE)
    }
    lines = {line.name for line in every_line(normalize(battery_policy(machine)))}
    stopping = lines - OPENINGS - HIDES_NAMES_ONLY | {"environment", "terminal"}
    stopping |= {"limits", "planted", "unfinished"}
    assert stopping <= set(table)
    assert set(table) - stopping <= DEPENDS | ELSEWHERE
    for line in set(table) - ELSEWHERE:
        assert table[line] == {name for name, one in ATTACKS.items() if line in one.lines}, line
        assert table[line], f"nothing shows that {line} is needed"


@pytest.mark.few(1)
def test_x2_every_line_that_a_test_leaves_out_exists(machine: Machine) -> None:
    lines = {line.name for line in every_line(normalize(battery_policy(machine)))}
    for one in ATTACKS.values():
        assert one.lines | one.also <= lines | {"environment"} | DEPENDS, one.name
        policy = normalize(battery_policy(machine))
        is_other = arguments(policy, one.lines) != arguments(policy)
        assert is_other or one.lines <= {"environment"} | DEPENDS


def test_x5_no_file_of_the_kernel_can_be_written(machine: Machine) -> None:
    """Root needs no capability for them; others are asked for one."""
    if machine.uid != 0:
        pytest.skip("what an ordinary user may write there belongs to its own namespaces")
    script = """
import os
for directory, names, files in os.walk("/proc"):
    if directory == "/proc":
        names[:] = [n for n in names if not n.isdigit() and n not in ("self", "thread-self")]
    for file in files:
        if os.access(os.path.join(directory, file), os.W_OK):
            print(os.path.join(directory, file))
"""
    written = machine.run([PYTHON, "-c", script]).stdout.decode().split()
    # Pressure is measured by writing down what to wait for; it changes nothing.
    assert [path for path in written if not path.startswith("/proc/pressure/")] == []
    opened = machine.run([PYTHON, "-c", script], without={"kernel"}).stdout
    assert b"/proc/sys/kernel/core_pattern" in opened
