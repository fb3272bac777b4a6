"""A developer's day behind walls: what has to work there."""

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from bullpen.holder.child import set_size
from bullpen.sandboxes.base import Git
from tests.sandboxes.machine import PYTHON, SECRET, Machine
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def remote(machine: Machine) -> Path:
    path = machine.root / "remote.git"
    machine.git("init", "-q", "--bare", str(path))
    machine.git("remote", "add", "origin", str(path))
    machine.git("push", "-q", "origin", "main", "other")
    return path


@pytest.mark.few(1)
def test_x7_a_day_with_git(machine: Machine, remote: Path) -> None:
    policy = machine.policy(writable=(machine.cwd, remote))
    # Somebody pushed in the meantime.
    machine.git("checkout", "-q", "other")
    (machine.repo / "theirs").write_text("theirs")
    machine.own()
    machine.git("add", ".")
    machine.git("-c", "commit.gpgsign=false", "commit", "-qm", "Theirs")
    machine.git("push", "-q", "origin", "other")
    said = machine.shell(
        """
        test "$(git config commit.gpgsign)" = false
        echo one >one; git add one; git commit -qm One
        echo more >>one; git commit -qa --amend -m 'One, amended'
        git fetch -q origin
        git merge -q -m Merge origin/other
        test -f theirs
        git checkout -q -b topic HEAD~1
        echo two >two; git add two; git commit -qm Two
        git rebase -q amy
        git stash list
        echo three >>two; git stash -q; git stash pop -q
        git commit -qam Three
        git tag mark
        git push -q origin topic
        git checkout -q amy
        git status --porcelain
        git log --oneline topic | head -3
        """,
        policy,
    )
    assert "Three" in said
    assert "Two" in said
    assert machine.bring_over().state.refused == {}
    assert machine.git("log", "-1", "--format=%s", "amy").strip() == "Merge"
    topic = "refs/bullpen/in/amy/heads/topic"
    assert machine.git("log", "-1", "--format=%s", topic).strip() == "Three"
    assert (
        "topic"
        in subprocess.run(
            ["git", "-c", "safe.directory=*", "--git-dir", remote, "branch"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )
    assert (machine.cwd / "theirs").exists()


def test_x7_what_would_harm_others_stays_inside(machine: Machine) -> None:
    before = machine.git("for-each-ref"), (machine.common / "config").read_text()
    machine.shell(
        """
        git config user.name x; git branch -D spare; git pack-refs --all; git gc -q
        git update-ref refs/heads/main $(git commit-tree -m evil HEAD^{tree})
        git worktree prune --expire=now; git fsck
        """
    )
    assert (machine.git("for-each-ref"), (machine.common / "config").read_text()) == before
    assert (machine.common / "worktrees" / "bob" / "gitdir").exists()


def test_x2_a_whole_install_root_would_show_the_login_beside_its_program(machine: Machine) -> None:
    """What stops `login_beside_a_program` is the choice of directories (`entry_roots`)."""
    entry, login = machine.person / ".fly" / "bin", machine.person / ".fly" / "config.yml"
    assert machine.shell(f"{entry}/flyctl") == "fly"
    assert machine.run(["cat", str(login)]).returncode != 0
    whole = machine.policy(programs=(entry.parent,))
    assert machine.shell(f"cat {login}", whole) == SECRET


def test_x2_names_and_tools(machine: Machine) -> None:
    said = machine.shell(
        f"""
        whoami
        awk 'BEGIN {{ print "awk" }}'
        {PYTHON} -c 'import getpass, ssl; print(getpass.getuser(), "python")'
        echo x >$HOME/cache; cat $HOME/.gitconfig >/dev/null
        tool
        """,
        env={"PATH": f"{machine.programs}:/usr/bin:/bin"},
    )
    lines = said.splitlines()
    assert lines[0] not in ("", "nobody")
    assert lines[1:] == ["awk", "amy python", "tool"]
    assert not (machine.person / "cache").exists()


def test_x2_a_version_manager_in_the_home_directory(machine: Machine) -> None:
    manager = machine.person / ".pyenv"
    shim = manager / "shims" / "python"
    shim.parent.mkdir(parents=True)
    shim.write_text(f'#!/bin/sh\nexec {manager}/versions/3/bin/python "$@"\n')
    shim.chmod(0o755)
    binary = manager / "versions" / "3" / "bin" / "python"
    binary.parent.mkdir(parents=True)
    shutil.copy(os.path.realpath(PYTHON), binary)
    (machine.person / ".secret").write_text("hidden")
    machine.own()
    env = {"PATH": f"{shim.parent}:/usr/bin:/bin"}
    policy = machine.policy(programs=(manager,))
    said = machine.shell(
        "python -c 'import json, sys; print(sys.executable)'; ls -A $HOME", policy, env=env
    )
    assert str(manager) in said
    assert ".secret" not in said
    assert machine.run(["python", "-c", "pass"], machine.policy(), env=env).returncode != 0


@pytest.mark.storm
@pytest.mark.skipif(not shutil.which("npm", path="/usr/bin"), reason="there is no npm")
def test_x2_npm(machine: Machine) -> None:
    package = {"name": "x", "version": "1.0.0", "scripts": {"test": "node -e 'console.log(6*7)'"}}
    (machine.cwd / "package.json").write_text(json.dumps(package))
    machine.own()
    assert "42" in machine.shell("npm test --silent && npm install --offline --silent && ls")


def test_x2_a_read_only_working_directory(machine: Machine) -> None:
    """What `read_only_paths: [.]` makes."""
    policy = machine.policy(read_only=(machine.cwd,))
    said = machine.shell("git status --porcelain; git log --oneline; pwd; echo x >/tmp/x", policy)
    assert str(machine.cwd) in said
    before = machine.git("rev-parse", "amy")
    for script in (
        "echo x >file",
        "git commit --allow-empty -m x",
        "git update-ref refs/heads/x HEAD",
    ):
        assert machine.run(["sh", "-c", script], policy).returncode != 0, script
    assert not (machine.cwd / "file").exists()
    assert machine.git("rev-parse", "amy") == before


def test_x2_a_read_only_working_directory_does_not_bring_the_home_back(machine: Machine) -> None:
    policy = machine.policy(cwd=machine.root, writable=(), git=None, read_only=(machine.root,))
    assert machine.run(["cat", str(machine.home / "state.db")], policy).returncode != 0
    assert machine.run(["cat", str(machine.root / "elsewhere/secret")], policy).returncode == 0
    assert machine.run(["touch", str(machine.root / "x")], policy).returncode != 0


def test_x2_a_main_checkout_can_be_read_and_its_repository_not_written(machine: Machine) -> None:
    policy = machine.policy(
        cwd=machine.repo,
        writable=(machine.repo,),
        git=Git(machine.common, machine.common, machine.repo),
    )
    machine.shell("echo x >file; git status --porcelain", policy)
    assert machine.run(["sh", "-c", "echo x >.git/hooks/post-checkout"], policy).returncode != 0
    assert machine.run(["mv", ".git", "moved"], policy).returncode != 0
    # Whoever can open the lock can hold it, and nobody makes worktrees any more.
    assert machine.run(["test", "-e", ".git/bullpen/lock"], policy).returncode != 0


def test_x2_the_session_can_be_read_and_its_sockets_used(machine: Machine) -> None:
    machine.shell(f"cat {machine.session}/settings.json; echo x >{machine.session}/api/x")
    assert (machine.session / "api" / "x").exists()


def test_x2_a_working_directory_in_the_session(machine: Machine) -> None:
    work = machine.session / "work" / "one"
    work.mkdir(parents=True)
    machine.own()
    policy = machine.policy(cwd=work, writable=(), git=None)
    machine.shell("git init -q; echo x >file; git add .; git commit -qm x", policy)
    assert (work / "file").exists()


def test_x2_exit_codes_and_programs_that_are_missing(machine: Machine) -> None:
    assert machine.run(["sh", "-c", "exit 7"]).returncode == 7
    assert machine.run(["no-such-program"]).returncode == 127


def test_x2_a_program_whose_name_looks_like_a_variable(machine: Machine) -> None:
    odd = machine.programs / "a=b"
    odd.write_text("#!/bin/sh\necho odd\n")
    odd.chmod(0o755)
    machine.own()
    assert machine.run([str(odd)]).stdout == b"odd\n"


def test_x5_links_that_an_agent_of_before_left_are_removed_at_its_next_start(
    machine: Machine,
) -> None:
    """git appends to a reflog that is a link: to a person's startup file, say; and it waits for
    pipes."""
    startup = machine.person / ".bashrc"
    log = machine.common / "logs" / "refs" / "heads" / "main"
    ref = machine.common / "refs" / "heads" / "pipe"
    unsigned = ("-c", "commit.gpgsign=false")
    for is_cleared in (False, True):
        log.unlink()
        log.symlink_to(startup)
        os.mkfifo(ref)
        machine.own()
        # Only where a pipe is in the way it does not answer, however long it is waited for.
        ask = ["timeout", "60" if is_cleared else "1", "git", "for-each-ref"]
        if is_cleared:
            machine.shell("git log --oneline")
        assert ("refs/heads/main" in machine.outside(ask, cwd=machine.repo)) == is_cleared
        ref.unlink(missing_ok=True)
        startup.write_text("")
        machine.git(*unsigned, "commit", "-q", "--allow-empty", "-m", "Mine")
        assert startup.read_text().endswith("commit: Mine\n") != is_cleared


def test_x2_an_ssh_agent_that_is_given_can_be_used(machine: Machine) -> None:
    directory = machine.root / "elsewhere" / "agent"
    directory.mkdir()
    machine.listen(directory / "sock")
    (directory / "beside").write_text("hidden")
    machine.own()
    script = (
        "import os, socket; s = socket.socket(socket.AF_UNIX);"
        "s.connect(os.environ['SSH_AUTH_SOCK']);"
        "print(os.listdir(os.path.dirname(s.getpeername())))"
    )
    env = {"SSH_AUTH_SOCK": str(directory / "sock")}
    policy = machine.policy(ssh_agent=directory / "sock")
    done = machine.run([PYTHON, "-c", script], policy, env=env)
    assert done.stdout == b"['sock']\n", done.stderr
    assert machine.run([PYTHON, "-c", script], machine.policy(), env=env).returncode != 0


# ── signals and terminals ────────────────────────────────────────────────────


@pytest.mark.few(4)
@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT", "USR1"])
def test_x2_a_signal_to_the_group_lets_the_program_clean_up(machine: Machine, name: str) -> None:
    script = f"trap 'echo x >cleaned; exit 3' {name}; echo ready; while :; do sleep 0.05; done"
    child = machine.start(machine.wrap(["sh", "-c", script], machine.policy()))
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    os.killpg(child.pid, signal.Signals[f"SIG{name}"])
    child.communicate(timeout=60)
    assert child.returncode == 3
    assert (machine.cwd / "cleaned").exists()


def test_x2_sigkill_leaves_nothing_behind(machine: Machine) -> None:
    script = "setsid sleep 987654 & echo ready; wait"
    child = machine.start(machine.wrap(["sh", "-c", script], machine.policy()))
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    os.killpg(child.pid, signal.SIGKILL)
    child.communicate(timeout=60)

    def is_left() -> bool:
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if b"987654" in entry.read_bytes():
                    return True
            except OSError:
                continue
        return False

    wait_until(lambda: not is_left())


def test_x2_keys_and_size_of_a_terminal(machine: Machine) -> None:
    script = (
        "trap 'echo interrupted; exit 5' INT; trap 'stty size' WINCH;"
        "echo ready; while :; do sleep 0.05; done"
    )
    policy = machine.policy(is_terminal=True)
    child, master = machine.start_in_terminal(machine.wrap(["bash", "-c", script], policy))
    heard = Listener(master)
    wait_until(lambda: "ready" in heard())
    set_size(master, 33, 77)
    wait_until(lambda: "33 77" in heard())
    os.write(master, b"\x03")
    wait_until(lambda: "interrupted" in heard())
    assert child.wait(timeout=60) == 5
    os.close(master)


def test_x2_job_control(machine: Machine) -> None:
    policy = machine.policy(is_terminal=True)
    wrapped = machine.wrap(["bash", "--norc", "--noprofile", "-i"], policy)
    child, master = machine.start_in_terminal(wrapped)
    heard = Listener(master)
    wait_until(lambda: re.search(r"[$#] $", heard()) is not None)
    shell = os.tcgetpgrp(master)
    os.write(master, b"sleep 500\n")
    # Before it is that program, it ignores the key as its shell does.
    wait_until(lambda: Path(f"/proc/{os.tcgetpgrp(master)}/comm").read_text() == "sleep\n")
    os.write(master, b"\x1a")
    wait_until(lambda: "Stopped" in heard() and os.tcgetpgrp(master) == shell)
    os.write(master, b"fg\n")
    wait_until(lambda: os.tcgetpgrp(master) != shell)
    os.write(master, b"\x03")
    wait_until(lambda: os.tcgetpgrp(master) == shell)
    os.write(master, b"exit 4\n")
    wait_until(lambda: bool(heard()) and child.poll() is not None)
    assert child.returncode == 4
    assert "no job control" not in heard()
    os.close(master)


class Listener:
    """What has come out of a terminal so far."""

    def __init__(self, master: int) -> None:
        self.master = master
        self.text = ""
        os.set_blocking(master, False)

    def __call__(self) -> str:
        try:
            while block := os.read(self.master, 65536):
                self.text += block.decode(errors="replace")
        except (BlockingIOError, OSError):
            pass
        return self.text
