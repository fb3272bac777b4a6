"""Row 18: a clean branch lands, without a verification, beside `git merge` in a warm checkout, and
beside the same as careful by plain git: in a worktree of its own, then `update-ref`.

The agent commits a file whenever it is told to: in the repository itself or, in a sandbox, in a
git of its own, from which its commit is brought over first.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

from bench.hubs import run
from bench.table import Row, interleaved, timed, wait_until
from bench.tools import TREE, git, grove
from bullpen.client import Hub, landings
from bullpen.client.messages import send_message
from bullpen.home.paths import Home

COMMITTER = """\
while read -r line; do
    name=${line##* }
    echo "$name" >"$name.txt" && git add "$name.txt" && git commit -qm "$name"
    echo "COMMITTED $name"
done
"""
ROLE = "name: {name}\nagent_type: command\ndeliver: lines\ncommand: {command}\n"


def rows(short: bool) -> Iterator[Row]:
    """From a branch of the repository, and from a git of the agent's own."""
    rounds, files = (1, 20) if short else (15, 1000)
    with grove(files) as (home, env, repo):
        peer = repo.with_name("peer")
        shutil.copytree(repo, peer)
        merge = partial(_merge, peer, env, count(1))
        merge()
        for name, what, goal in (
            ("open", "landing, against git merge", 2.0),
            ("boxed", "landing out of a sandbox, against git merge", 4.0),
        ):
            _launch(home, env, repo, name)
            land = partial(_land, home, name, count(1))
            land()
            ours, theirs = interleaved(rounds, land, merge)
            yield Row("18", what, ours, theirs, goal)
        aside = partial(_merge_aside, peer, env, count(1))
        aside()
        ours, theirs = interleaved(rounds, partial(_land, home, "open", count(100)), aside)
        yield Row("18", "landing, against worktree add, merge, update-ref", ours, theirs, 2.0)


def _launch(home: Home, env: dict[str, str], repo: Path, name: str) -> None:
    sandbox = f"sandbox: {{enabled: {'true' if name == 'boxed' else 'false'}}}\n"
    role = ROLE.format(name=name, command=json.dumps(["sh", "-c", COMMITTER])) + TREE + sandbox
    (home.root / "roles" / f"{name}.yaml").write_text(role)
    run(env, "run", "--role", name, "--name", name, "--detach", cwd=str(repo))


def _land(home: Home, name: str, numbers: Iterator[int]) -> float:
    file, hub = f"{name}{next(numbers)}", Hub(home)
    hub.do(send_message(name, file).unchecked())
    log = home.session(name) / "output.log"
    wait_until(lambda: f"COMMITTED {file}".encode() in log.read_bytes(), 0.01)

    def work() -> None:
        (asked,) = hub.do(landings.land([name])).landings
        landed = hub.do(landings.get_landing(asked.id, wait=60.0))
        if landed.status.state != "landed":
            raise RuntimeError(f"{name} did not land: {landed.status}")

    return timed(work)


def _merge(peer: Path, env: dict[str, str], numbers: Iterator[int]) -> float:
    """A branch with one commit, merged where the target is checked out."""
    name = _branch(peer, env, f"p{next(numbers)}")
    work: Callable[[], object] = partial(git, peer, env, "merge", "-q", "--no-ff", "-m", name, name)
    return timed(work)


def _merge_aside(peer: Path, env: dict[str, str], numbers: Iterator[int]) -> float:
    """The same in a checkout of its own: the person's is not touched, and main moves at once."""
    name, scratch = _branch(peer, env, f"q{next(numbers)}"), peer.with_name("scratch")
    git(peer, env, "switch", "-q", "--detach")  # git moves no branch that is checked out

    def work() -> None:
        git(peer, env, "worktree", "add", "-q", "--detach", str(scratch), "main")
        git(scratch, env, "merge", "-q", "--no-ff", "-m", name, name)
        new = git(scratch, env, "rev-parse", "HEAD").strip()
        git(peer, env, "update-ref", "refs/heads/main", new)
        git(peer, env, "worktree", "remove", str(scratch))

    seconds = timed(work)
    git(peer, env, "switch", "-q", "main")
    return seconds


def _branch(peer: Path, env: dict[str, str], name: str) -> str:
    """A branch with one commit on main, which is checked out again."""
    git(peer, env, "switch", "-qc", name)
    (peer / f"{name}.txt").write_text(f"{name}\n")
    git(peer, env, "add", "-A")
    git(peer, env, "commit", "-qm", name)
    git(peer, env, "switch", "-q", "main")
    return name
