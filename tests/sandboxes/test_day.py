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
from bullpen.sandboxes.prepare import remove_planted
from tests.sandboxes.place import PYTHON, Place, as_user
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def remote(place: Place) -> Path:
    path = place.root / "remote.git"
    place.git("init", "-q", "--bare", str(path))
    place.git("remote", "add", "origin", str(path))
    place.git("push", "-q", "origin", "main", "other")
    return path


def test_x2_a_day_with_git(place: Place, remote: Path) -> None:
    policy = place.policy(writable=(place.cwd, remote))
    # Somebody pushed in the meantime.
    place.git("checkout", "-q", "other")
    (place.repo / "theirs").write_text("theirs")
    place.own()
    place.git("add", ".")
    place.git("-c", "commit.gpgsign=false", "commit", "-qm", "Theirs")
    place.git("push", "-q", "origin", "other")
    said = place.shell(
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
    assert place.git("log", "-1", "--format=%s", "topic").strip() == "Three"
    assert (
        "topic"
        in subprocess.run(
            ["git", "-c", "safe.directory=*", "--git-dir", remote, "branch"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )
    assert (place.cwd / "theirs").exists()


def test_x2_what_would_harm_others_does_not_work(place: Place) -> None:
    for words in (
        ["git", "config", "user.name", "x"],
        ["git", "worktree", "add", "../new"],
        ["git", "branch", "-D", "spare"],
        ["git", "pack-refs", "--all"],
    ):
        done = place.run(words)
        assert done.returncode != 0, (words, done)
    place.run(["git", "worktree", "prune", "--expire=now"])
    assert (place.common / "worktrees" / "bob" / "gitdir").exists()


def test_x2_all_refs_are_recorded_before_each_start_and_can_be_put_back(place: Place) -> None:
    was = place.git("rev-parse", "main").strip()
    place.shell("git commit -q --allow-empty -m Mine; git update-ref refs/heads/main HEAD")
    moved = place.git("rev-parse", "main").strip()
    assert moved != was
    record = place.session / "refs.before"
    assert f"update refs/heads/main {was}\n" in record.read_text()
    place.outside(["sh", "-c", f"git update-ref --stdin <{record}"], cwd=place.repo)
    assert place.git("rev-parse", "main").strip() == was
    place.git("update-ref", "refs/heads/main", moved)
    place.shell("true")
    assert f"update refs/heads/main {moved}\n" in record.read_text()


def test_x2_names_and_tools(place: Place) -> None:
    said = place.shell(
        f"""
        whoami
        awk 'BEGIN {{ print "awk" }}'
        {PYTHON} -c 'import getpass, ssl; print(getpass.getuser(), "python")'
        echo x >$HOME/cache; cat $HOME/.gitconfig >/dev/null
        tool
        """,
        env={"PATH": f"{place.programs}:/usr/bin:/bin"},
    )
    lines = said.splitlines()
    assert lines[0] not in ("", "nobody")
    assert lines[1:] == ["awk", "amy python", "tool"]
    assert not (place.person / "cache").exists()


def test_x2_a_version_manager_in_the_home_directory(place: Place) -> None:
    manager = place.person / ".pyenv"
    shim = manager / "shims" / "python"
    shim.parent.mkdir(parents=True)
    shim.write_text(f'#!/bin/sh\nexec {manager}/versions/3/bin/python "$@"\n')
    shim.chmod(0o755)
    binary = manager / "versions" / "3" / "bin" / "python"
    binary.parent.mkdir(parents=True)
    shutil.copy(os.path.realpath(PYTHON), binary)
    (place.person / ".secret").write_text("hidden")
    place.own()
    env = {"PATH": f"{shim.parent}:/usr/bin:/bin"}
    policy = place.policy(programs=(manager,))
    said = place.shell(
        "python -c 'import json, sys; print(sys.executable)'; ls -A $HOME", policy, env=env
    )
    assert str(manager) in said
    assert ".secret" not in said
    assert place.run(["python", "-c", "pass"], place.policy(), env=env).returncode != 0


@pytest.mark.few(1)
@pytest.mark.skipif(not shutil.which("npm", path="/usr/bin"), reason="there is no npm")
def test_x2_npm(place: Place) -> None:
    package = {"name": "x", "version": "1.0.0", "scripts": {"test": "node -e 'console.log(6*7)'"}}
    (place.cwd / "package.json").write_text(json.dumps(package))
    place.own()
    assert "42" in place.shell("npm test --silent && npm install --offline --silent && ls")


def test_x2_a_read_only_working_directory(place: Place) -> None:
    """What `read_only_paths: [.]` makes."""
    policy = place.policy(read_only=(place.cwd,))
    said = place.shell("git status --porcelain; git log --oneline; pwd; echo x >/tmp/x", policy)
    assert str(place.cwd) in said
    before = place.git("rev-parse", "amy")
    for script in (
        "echo x >file",
        "git commit --allow-empty -m x",
        "git update-ref refs/heads/x HEAD",
    ):
        assert place.run(["sh", "-c", script], policy).returncode != 0, script
    assert not (place.cwd / "file").exists()
    assert place.git("rev-parse", "amy") == before


def test_x2_a_read_only_working_directory_does_not_bring_the_home_back(place: Place) -> None:
    policy = place.policy(cwd=place.root, writable=(), git=None, read_only=(place.root,))
    assert place.run(["cat", str(place.home / "state.db")], policy).returncode != 0
    assert place.run(["cat", str(place.root / "elsewhere/secret")], policy).returncode == 0
    assert place.run(["touch", str(place.root / "x")], policy).returncode != 0


def test_x2_a_main_checkout_can_be_read_and_its_repository_not_written(place: Place) -> None:
    policy = place.policy(
        cwd=place.repo, writable=(place.repo,), git=Git(place.common, place.common, place.repo)
    )
    place.shell("echo x >file; git status --porcelain", policy)
    assert place.run(["sh", "-c", "echo x >.git/hooks/post-checkout"], policy).returncode != 0
    assert place.run(["mv", ".git", "moved"], policy).returncode != 0


def test_x2_the_session_can_be_read_and_its_doors_used(place: Place) -> None:
    place.shell(f"cat {place.session}/settings.json; echo x >{place.session}/api/x")
    assert (place.session / "api" / "x").exists()


def test_x2_a_working_directory_in_the_session(place: Place) -> None:
    work = place.session / "work" / "one"
    work.mkdir(parents=True)
    place.own()
    policy = place.policy(cwd=work, writable=(), git=None)
    place.shell("git init -q; echo x >file; git add .; git commit -qm x", policy)
    assert (work / "file").exists()


def test_x2_exit_codes_and_programs_that_are_missing(place: Place) -> None:
    assert place.run(["sh", "-c", "exit 7"]).returncode == 7
    assert place.run(["no-such-program"]).returncode == 127


def test_x2_a_program_whose_name_looks_like_a_variable(place: Place) -> None:
    odd = place.programs / "a=b"
    odd.write_text("#!/bin/sh\necho odd\n")
    odd.chmod(0o755)
    place.own()
    assert place.run([str(odd)]).stdout == b"odd\n"


def test_x5_links_in_the_repository_are_removed_before_git_outside_follows_them(
    place: Place,
) -> None:
    """git appends to a reflog that is a link: to a person's startup file, say."""
    startup = place.person / ".bashrc"
    log = place.common / "logs" / "refs" / "heads" / "main"
    unsigned = ("-c", "commit.gpgsign=false")
    for is_cleared in (True, False):
        place.shell(f"rm -f {log}; ln -s {startup} {log}; ln -s {startup} {place.admin}/link")
        if is_cleared:
            assert removed_in(place) == {log, place.admin / "link"}
        place.git(*unsigned, "commit", "-q", "--allow-empty", "-m", "Mine")
        assert startup.read_text().endswith("commit: Mine\n") != is_cleared


def test_x5_nor_are_its_objects_led_elsewhere_or_pipes_waited_for(place: Place) -> None:
    """gc deletes through such a link; any git waits for such a pipe, for ever."""
    pack, ref = place.common / "objects" / "pack", place.common / "refs" / "heads" / "pipe"
    elsewhere = place.root / "elsewhere"
    redundant = place.write("elsewhere/tmp_of_somebody", "")
    ask = ["timeout", "1", "git", "for-each-ref"]
    for is_cleared in (True, False):
        place.shell(f"rm -rf {pack}; ln -s {elsewhere} {pack}; mkfifo {ref}")
        if is_cleared:
            assert removed_in(place) == {pack, ref}
        assert ("refs/heads/main" in place.outside(ask, cwd=place.repo)) == is_cleared
        ref.unlink(missing_ok=True)
        place.git("prune", "--expire=now")
        assert redundant.exists() == is_cleared


def removed_in(place: Place) -> set[Path]:
    repo = Git(place.common, place.admin, place.cwd)
    return set(as_user(place.uid, lambda: remove_planted(repo)))


def test_x2_an_ssh_agent_that_is_given_can_be_used(place: Place) -> None:
    directory = place.root / "elsewhere" / "agent"
    directory.mkdir()
    place.listen(directory / "sock")
    (directory / "beside").write_text("hidden")
    place.own()
    script = (
        "import os, socket; s = socket.socket(socket.AF_UNIX);"
        "s.connect(os.environ['SSH_AUTH_SOCK']);"
        "print(os.listdir(os.path.dirname(s.getpeername())))"
    )
    env = {"SSH_AUTH_SOCK": str(directory / "sock")}
    policy = place.policy(ssh_agent=directory / "sock")
    done = place.run([PYTHON, "-c", script], policy, env=env)
    assert done.stdout == b"['sock']\n", done.stderr
    assert place.run([PYTHON, "-c", script], place.policy(), env=env).returncode != 0


# ── signals and terminals ────────────────────────────────────────────────────


@pytest.mark.few(4)
@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT", "USR1"])
def test_x2_a_signal_to_the_group_lets_the_program_clean_up(place: Place, name: str) -> None:
    script = f"trap 'echo x >cleaned; exit 3' {name}; echo ready; while :; do sleep 0.05; done"
    child = place.start(place.wrap(["sh", "-c", script], place.policy()))
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    os.killpg(child.pid, signal.Signals[f"SIG{name}"])
    child.communicate(timeout=60)
    assert child.returncode == 3
    assert (place.cwd / "cleaned").exists()


def test_x2_sigkill_leaves_nothing_behind(place: Place) -> None:
    script = "setsid sleep 987654 & echo ready; wait"
    child = place.start(place.wrap(["sh", "-c", script], place.policy()))
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


def test_x2_keys_and_size_of_a_terminal(place: Place) -> None:
    script = (
        "trap 'echo interrupted; exit 5' INT; trap 'stty size' WINCH;"
        "echo ready; while :; do sleep 0.05; done"
    )
    policy = place.policy(is_terminal=True)
    child, master = place.start_in_terminal(place.wrap(["bash", "-c", script], policy))
    heard = Listener(master)
    wait_until(lambda: "ready" in heard())
    set_size(master, 33, 77)
    wait_until(lambda: "33 77" in heard())
    os.write(master, b"\x03")
    wait_until(lambda: "interrupted" in heard())
    assert child.wait(timeout=60) == 5
    os.close(master)


def test_x2_job_control(place: Place) -> None:
    policy = place.policy(is_terminal=True)
    wrapped = place.wrap(["bash", "--norc", "--noprofile", "-i"], policy)
    child, master = place.start_in_terminal(wrapped)
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
