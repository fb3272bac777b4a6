"""Row 9: how long a program behind walls takes to start, beside bubblewrap with next to none; and
what a git of its own costs there."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench.table import NOISE_SECONDS, Row, Skipped, interleaved, timed
from bullpen.sandboxes.base import Git, Policy
from bullpen.sandboxes.bubblewrap import BUBBLEWRAP
from bullpen.sandboxes.limits import entries, find, remove_ended

BARE = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all", "true"]

AUTHOR = {
    "GIT_AUTHOR_NAME": "Amy",
    "GIT_AUTHOR_EMAIL": "amy@example.com",
    "GIT_COMMITTER_NAME": "Amy",
    "GIT_COMMITTER_EMAIL": "amy@example.com",
}


def rows(short: bool) -> Iterator[Row]:
    """`true` through the whole policy of a task; the hub prepares and wraps before.

    Where processes are limited by a cgroup, both enter one: the kernel takes longer for that than
    for all the rest. The second row is without.
    """
    _check()
    with tempfile.TemporaryDirectory() as scratch:
        session = Path(scratch, "home", "sessions", "amy")
        policy = Policy(
            cwd=Path(scratch, "work"),
            home=Path(scratch, "home"),
            session=session,
            person=Path(scratch, "person"),
            sockets=session / "api",
            is_terminal=False,
        )
        for path in (policy.cwd, policy.sockets, policy.person):
            path.mkdir(parents=True)
        BUBBLEWRAP.prepare(policy)
        enter = "".join(f"echo $$ >{file}; " for file in entries(policy, find()))
        limited = BUBBLEWRAP.wrap(("true",), os.environ, policy)
        free = BUBBLEWRAP.wrap(("true",), os.environ, policy, without={"limits"})
        starts = (
            ["sh", "-c", f'{enter}exec "$@"', "sh", *BARE],
            limited.argv,
            BARE,
            free.argv,
        )
        env = dict(limited.env)
        try:
            bare, ours, bare_free, ours_free = interleaved(
                1 if short else 60, *(partial(_start, list(words), env) for words in starts)
            )
        finally:
            remove_ended(policy.home, [])
        yield Row("9", "start behind walls, both with a limit", ours, bare, goal=1.3)
        yield Row("9", "start behind walls, both without one", ours_free, bare_free, goal=1.3)
        yield from _git_rows(Path(scratch), policy, short)


def _git_rows(scratch: Path, policy: Policy, short: bool) -> Iterator[Row]:
    """In a worktree there are a few mounts more. Commits are made in one shell, on either side."""
    repo, trees = scratch / "repo", scratch / "trees"
    _git("init", "-q", "-b", "main", repo)
    _git("-C", repo, "commit", "-q", "--allow-empty", "-m", "first")
    inside, outside = trees / "amy", trees / "bob"
    for path in (inside, outside):
        _git("-C", repo, "worktree", "add", "-q", path)
    git = Git(repo / ".git", repo / ".git" / "worktrees" / "amy", inside)
    own = replace(policy, cwd=inside, git=git)
    BUBBLEWRAP.prepare(own)
    commits = f"for i in $(seq {1 if short else 20}); do git commit -q --allow-empty -m x; done"
    script = ("sh", "-c", commits)
    words = [
        BUBBLEWRAP.wrap(argv, {**os.environ, **AUTHOR}, each, without={"limits"})
        for argv, each in ((("true",), policy), (("true",), own), (script, own))
    ]
    plain, with_git, committing = (
        partial(_start, list(each.argv), dict(each.env)) for each in words
    )
    beside = partial(_start, ["env", "-C", str(outside), *script], {**os.environ, **AUTHOR})
    without, ours = interleaved(1 if short else 40, plain, with_git)
    yield Row("9", "start in a worktree, beside one without git", ours, without, goal=1.3)
    ours, bare, start = interleaved(1 if short else 10, committing, beside, with_git)
    committed = max(ours - start, NOISE_SECONDS)
    yield Row("9", "commits behind walls, beside outside", committed, bare, goal=1.3)


def _git(*words: str | Path) -> None:
    subprocess.run(["git", *words], env={**os.environ, **AUTHOR}, check=True)


def _check() -> None:
    if not shutil.which("bwrap"):
        raise Skipped("bwrap is not installed")
    done = subprocess.run(BARE, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Skipped(f"bwrap may not be used: {done.stderr.strip()}")


def _start(words: list[str], env: dict[str, str]) -> float:
    return timed(partial(subprocess.run, words, env=env, check=True, start_new_session=True))
