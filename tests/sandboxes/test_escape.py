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

from bullpen.sandboxes import limits
from bullpen.sandboxes.base import Network, Policy
from bullpen.sandboxes.bounds import settle
from bullpen.sandboxes.bubblewrap import arguments, every_line
from tests.ports import reserved_port
from tests.processes import children_of
from tests.sandboxes import attacks
from tests.sandboxes.attacks import ATTACKS, SECRET, Attack
from tests.sandboxes.place import PYTHON, Place
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

libc = ctypes.CDLL(None, use_errno=True)
MODES = ("pipes", "terminal")
KEPT = contextlib.ExitStack()


def battery_policy(place: Place, **more: Any) -> Policy:
    guarded = (".claude", ".mcp.json", "deep/guarded")
    return place.policy(
        network=Network(*reserved_ports()),
        read_only=tuple(place.cwd / name for name in guarded),
        **more,
    )


@functools.cache
def reserved_ports() -> tuple[int, int]:
    """Without their line they are listened to on the machine's own loopback. One pair for all
    tests of a process, until it ends."""
    return KEPT.enter_context(reserved_port()), KEPT.enter_context(reserved_port())


# ── what is outside ──────────────────────────────────────────────────────────


@contextlib.contextmanager
def surroundings(place: Place) -> Iterator[dict[str, Any]]:
    """What an attempt may aim at, beside files: a process, a port, memory, a key, a terminal."""
    with contextlib.ExitStack() as stack:
        env = {**place.env, "HUB_ONLY": SECRET}
        seconds = 10**8 + int.from_bytes(os.urandom(3))
        victim = subprocess.Popen(["sleep", str(seconds)], env=env, **place.identity)
        file = stack.enter_context(tempfile.NamedTemporaryFile(dir="/var/tmp"))
        file.write(SECRET.encode())
        file.flush()
        os.fchown(file.fileno(), place.uid, place.uid)
        stack.callback(victim.wait)
        stack.callback(victim.kill)
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        name = f"bullpen-{os.urandom(6).hex()}"
        abstract.bind(f"\0{name}")
        abstract.listen(100)
        master, slave = pty.openpty()
        os.fchown(slave, place.uid, place.uid)
        stack.callback(os.close, slave)
        stack.callback(os.close, master)
        key = int.from_bytes(os.urandom(3))
        stack.callback(_remove_memory, _make_memory(place, key))
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
            "keys of the system": place.uid == 0 and any(Path("/etc/ssl").glob("private/*")),
        }
        yield {
            **{name: str(getattr(place, name)) for name in NAMES},
            "elsewhere": str(place.root / "elsewhere"),
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


def _make_memory(place: Place, key: int) -> int:
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
        ctypes.memmove(ctypes.byref(status, 4), place.uid.to_bytes(4, "little") * 2, 8)
        assert libc.shmctl(identifier, 1, status) == 0
    return identifier


def _remove_memory(identifier: int) -> None:
    libc.shmctl(identifier, 0, None)


def outside_files(place: Place) -> dict[str, bytes]:
    """All that an agent must not change; what it may is left out."""
    may = re.compile(
        r"home/sessions/amy/(api|walls|refs\.before)|repo/\.git/(refs|logs)/"
        r"|repo/\.git/objects/(?!info)|repo/\.git/worktrees/amy/(?!(commondir|gitdir|config\.worktree)$)"
        r"|home/worktrees/amy/(?!\.git$|\.claude|\.mcp|deep)"
        # git outside writes them, too
        r"|repo/\.git/(index|HEAD|ORIG_HEAD)"
    )
    found = {}
    for directory, _, files in os.walk(place.root):
        for file in files:
            path = Path(directory, file)
            name = str(path.relative_to(place.root))
            if not may.match(name) and path.is_file():
                found[name] = path.read_bytes()
    return found


def use_git_outside(place: Place) -> None:
    """What a person does on any day, carelessly: git finds its directories by itself."""
    for where in (place.repo, place.cwd):
        place.git("status", cwd=where)
        place.git("diff", cwd=where)
        place.git("checkout", "-q", "--detach", cwd=where)
        place.git("log", "--oneline", cwd=where)
    place.git("worktree", "list")


# ── running attempts ─────────────────────────────────────────────────────────


def attempt(
    place: Place,
    target: dict[str, Any],
    names: list[str],
    *,
    mode: str = "pipes",
    without: frozenset[str] = frozenset(),
    policy: Policy | None = None,
    between: Any = None,
) -> dict[str, dict[str, Any]]:
    """Inside, in one sandbox; `between` is called between two rounds of all of them."""
    results = place.cwd / "results.json"
    results.unlink(missing_ok=True)
    shutil.copy(attacks.__file__, place.cwd / "attacks.py")
    parameters = place.cwd / "parameters.json"
    parameters.write_text(json.dumps({**target, "turns": 2 if between else 1}))
    words = [PYTHON, "attacks.py", str(parameters), str(results), *names]
    policy = policy or battery_policy(place, is_terminal=mode == "terminal")
    place.own()
    env = {"SOME_TOKEN": SECRET}
    wrapped = place.wrap(words, policy, without=without, env=env)
    master = -1
    if mode == "terminal":
        child, master = place.start_in_terminal(wrapped)
    else:
        child = place.start(wrapped)
    try:
        if between:
            wait_until(lambda: (place.cwd / "waiting").exists() or child.poll() is not None)
            between()
            (place.cwd / "go").touch()
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
    place: Place,
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
            return outside_files(place) != before
        case "run":
            use_git_outside(place)
            return place.pwned.exists()
        case "kill":
            return not is_alive(target["victim"])
    raise AssertionError(one.kind)


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"


def able(place: Place, target: dict[str, Any]) -> list[Attack]:
    """The attempts that this user could make with success if there were no walls."""
    return [
        one
        for one in ATTACKS.values()
        if not (one.root_only and place.uid != 0) and (not one.needs or one.needs in target["has"])
    ]


@pytest.mark.few(10)
@pytest.mark.parametrize("name", ATTACKS)
def test_x5_each_attempt_works_without_the_lines_that_stop_it_and_is_blocked_with_them(
    place: Place, name: str
) -> None:
    one = ATTACKS[name]
    with surroundings(place) as target:
        if one not in able(place, target):
            pytest.skip("this user could not do it without walls, either")
        place.wrap(["true"], battery_policy(place))  # prepares
        before = outside_files(place)
        policy = battery_policy(place)
        if one.lines & {"root", "pid"}:
            # Without a relay: its file would be made on the machine, and it would stay behind.
            policy = replace(policy, network=None)
        blocked = attempt(place, target, [name], policy=policy)[f"{name}/0"]
        assert not worked(place, one, blocked, before, target), blocked
        without = one.lines | one.also
        opened = attempt(place, target, [name], policy=policy, without=without)[f"{name}/0"]
        assert worked(place, one, opened, before, target), opened


@pytest.mark.parametrize("mode", MODES)
def test_x5_all_attempts_are_blocked_also_while_somebody_outside_uses_git(
    place: Place, mode: str
) -> None:
    def use_the_repository() -> None:
        place.git("config", "user.nickname", "somebody")
        place.git("branch", "-D", "spare")
        place.git("status")
        place.git("status", cwd=place.cwd)
        assert "nickname" in (place.common / "config").read_text()
        assert "spare" not in place.git("branch")

    with surroundings(place) as target:
        use_git_outside(place)
        place.wrap(["true"], battery_policy(place))  # prepares
        before = outside_files(place)
        found = attempt(place, target, list(ATTACKS), mode=mode, between=use_the_repository)
        assert len(found) == 2 * len(ATTACKS)
        got = {name: value["got"] for name, value in found.items() if value.get("got")}
        assert got == {}
        assert is_alive(target["victim"])
        after = outside_files(place)
        ours = {"repo/.git/config", "repo/.git/packed-refs"}
        assert {name for name in before | after if before.get(name) != after.get(name)} <= ours
        for name in ours:
            assert b"evil" not in after[name]
            assert b"planted" not in after[name]
        use_git_outside(place)
        assert not place.pwned.exists()


def test_x5_a_home_in_the_working_directory_is_out_of_reach(place: Place) -> None:
    policy = battery_policy(place)
    policy = place.policy(
        cwd=place.root, writable=(), git=None, network=policy.network, programs=(place.programs,)
    )
    names = [name for name, one in ATTACKS.items() if one.lines == {"home"}]
    assert len(names) >= 9
    with surroundings(place) as target:
        target = {**target, "cwd": str(place.root)}
        before = outside_files(place)

        def run(without: frozenset[str]) -> dict[str, dict[str, Any]]:
            shutil.copy(attacks.__file__, place.root / "attacks.py")
            (place.root / "parameters.json").write_text(json.dumps(target))
            results = place.root / "results.json"
            results.unlink(missing_ok=True)
            place.own()
            words = [PYTHON, "attacks.py", "parameters.json", "results.json", *names]
            done = place.run(words, policy, without=without)
            assert results.exists(), done
            return json.loads(results.read_text())

        for name, result in run(frozenset()).items():
            assert not result.get("got"), (name, result)
        assert (place.home / "claude-config/default/.claude.json").read_bytes() == before[
            "home/claude-config/default/.claude.json"
        ]
        # It cannot be moved away, either, to put another in its place.
        assert "busy" in place.run(["mv", str(place.home), "moved"], policy).stderr.decode().lower()
        for name, result in run(frozenset({"home"})).items():
            assert result.get("got") or ATTACKS[name.split("/")[0]].kind == "write", (name, result)


def test_x5_namespaces_within_the_sandbox_open_nothing(place: Place) -> None:
    with surroundings(place) as target:
        place.wrap(["true"], battery_policy(place))
        before = outside_files(place)
        result = attempt(place, target, ["nested"])["nested/0"]
        # A machine that lets nobody make such a namespace would be fine as well.
        tried = result.get("got") or {"unshare": f"blocked: {result['error']}"}
        assert all(str(value).startswith("blocked") for value in tried.values()), tried
        assert outside_files(place) == before
        # With the capabilities outside such a namespace the same calls work: see `remount`.


# ── terminals ────────────────────────────────────────────────────────────────


def test_x5_nothing_is_typed_into_a_terminal_that_is_shared(place: Place) -> None:
    if Path("/proc/sys/dev/tty/legacy_tiocsti").read_text().strip() != "1":
        pytest.skip("this kernel lets nobody type for others")

    def typed(without: frozenset[str]) -> tuple[bytes, bytes]:
        """On pipes, but started from a terminal that somebody else reads."""
        master, slave = pty.openpty()
        os.fchown(slave, place.uid, place.uid)
        script = (
            "import sys; sys.path.insert(0, '.'); import attacks; attacks.type_into_the_terminal()"
        )
        shutil.copy(attacks.__file__, place.cwd / "attacks.py")
        wrapped = place.wrap([PYTHON, "-c", script], battery_policy(place), without=without)

        def take() -> None:
            import fcntl
            import termios

            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        child = place.start(wrapped, preexec_fn=take, pass_fds=(slave,))
        _, said = child.communicate(timeout=30)
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


def test_x5_in_a_terminal_of_its_own_it_types_for_itself_alone(place: Place) -> None:
    script = (
        "import sys; sys.path.insert(0, '.'); import attacks; attacks.type_into_the_terminal();"
        "open('heard', 'w').write(input())"
    )
    shutil.copy(attacks.__file__, place.cwd / "attacks.py")
    policy = battery_policy(place, is_terminal=True)
    if Path("/proc/sys/dev/tty/legacy_tiocsti").read_text().strip() != "1":
        pytest.skip("this kernel lets nobody type for others")
    child, master = place.start_in_terminal(place.wrap([PYTHON, "-c", script], policy))
    child.wait(timeout=30)
    os.close(master)
    assert (place.cwd / "heard").read_text() == "evil"


# ── limits ───────────────────────────────────────────────────────────────────


@pytest.mark.few(1)
def test_x5_a_fork_bomb_is_held(place: Place) -> None:
    if place.uid == 0 and limits.find().pids is None:
        pytest.skip("there is no limit for root here, and doctor says so")
    with surroundings(place) as target:
        target["processes"] = 60
        policy = battery_policy(place, processes=60)
        held = attempt(place, target, ["fork_bomb"], policy=policy)["fork_bomb/0"]["got"]
        assert 20 < held < 60
        free = attempt(place, target, ["fork_bomb"], policy=policy, without=frozenset({"limits"}))[
            "fork_bomb/0"
        ]["got"]
        assert free == 120


def test_x5_processes_of_others_do_not_count(place: Place) -> None:
    """A limit by user would count those of all agents, and of the person."""
    crowd = [subprocess.Popen(["sleep", "60"], **place.identity) for _ in range(40)]
    try:
        with surroundings(place) as target:
            target["processes"] = 40
            policy = battery_policy(place, processes=40)
            assert attempt(place, target, ["fork_bomb"], policy=policy)["fork_bomb/0"]["got"] > 20
    finally:
        for one in crowd:
            one.kill()
            one.wait()


# ── its end ──────────────────────────────────────────────────────────────────


def test_x2_it_dies_with_whoever_started_it(place: Place) -> None:
    def survives(without: frozenset[str]) -> bool:
        beat = place.cwd / "beat"
        beat.unlink(missing_ok=True)
        script = "while :; do date +%N >beat; sleep 0.02; done"
        wrapped = place.wrap(["sh", "-c", script], place.policy(), without=without)
        reader, writer = os.pipe()
        holder = os.fork()
        if holder == 0:
            os.close(reader)
            child = place.start(wrapped)
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
    *("cwd", "doors", "writable", "relay", "git-objects", "git-refs", "git-logs", "git-admin"),
    "links",
}
ELSEWHERE = {"terminal", "limits", "die-with-parent"}  # tests of their own, above
HIDES_NAMES_ONLY = {"cgroup"}
DEPENDS = {"kernel", "keys", "calls"}  # on the user, on the machine


def test_x5_the_table_of_the_documentation_has_every_line_and_every_attempt(place: Place) -> None:
    text = (Path(__file__).parents[2] / "docs" / "sandbox.md").read_text()
    table = {
        match[1]: set(re.findall(r"`(\w+)`", match[2]))
        for match in re.finditer(r"^\| `([\w./-]+)` \|[^|]*\| ([^|]*) \|$", text, re.MULTILINE)
    }
    lines = {line.name for line in every_line(settle(battery_policy(place)))}
    stopping = lines - OPENINGS - HIDES_NAMES_ONLY | {"environment", "terminal", "limits"}
    assert stopping <= set(table)
    assert set(table) - stopping <= DEPENDS
    for line in set(table) - ELSEWHERE:
        assert table[line] == {name for name, one in ATTACKS.items() if line in one.lines}, line
        assert table[line], f"nothing shows that {line} is needed"


def test_x2_every_line_that_a_test_leaves_out_exists(place: Place) -> None:
    lines = {line.name for line in every_line(settle(battery_policy(place)))}
    for one in ATTACKS.values():
        assert one.lines | one.also <= lines | {"environment"} | DEPENDS, one.name
        policy = settle(battery_policy(place))
        is_other = arguments(policy, one.lines) != arguments(policy)
        assert is_other or one.lines <= {"environment"} | DEPENDS


def test_x5_no_file_of_the_kernel_can_be_written(place: Place) -> None:
    """Root needs no capability for them; others are asked for one."""
    if place.uid != 0:
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
    written = place.run([PYTHON, "-c", script]).stdout.decode().split()
    # Pressure is measured by writing down what to wait for; it changes nothing.
    assert [path for path in written if not path.startswith("/proc/pressure/")] == []
    opened = place.run([PYTHON, "-c", script], without={"kernel"}).stdout
    assert b"/proc/sys/kernel/core_pattern" in opened
