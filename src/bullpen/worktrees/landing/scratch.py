"""A scratch checkout for what is to land, and the command that verifies it there.

It lies in `<base>/.landing/`, is prepared as worktrees are (a pooled checkout if there is one,
copied files, set-up), and is thrown away with all that the command changed. Whatever a killed hub
left there, `clear` throws away. Called by `hub/landing`.
"""

import secrets
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bullpen import clock, proc
from bullpen.errors import BullpenError
from bullpen.files import read_tail
from bullpen.text import seconds_text
from bullpen.worktrees import admin, trash
from bullpen.worktrees.create import make
from bullpen.worktrees.errors import reported
from bullpen.worktrees.git import Checkout
from bullpen.worktrees.journal import NewWorktree
from bullpen.worktrees.plan import Spec, WorktreePlan
from bullpen.worktrees.prepare import SetupWrap, check_patterns, setup_environment
from bullpen.worktrees.records import Record, drop_record, find_record
from bullpen.worktrees.repo_lock import locked
from bullpen.worktrees.site import Site, recorded_path

TAIL_BYTES = 4000
LOCK_REASON = "bullpen: a landing is verified in it"


@dataclass(frozen=True)
class Verified:
    """What the command came to: empty `problem` if it is content."""

    problem: str
    tail: str
    seconds: float


def directory_of(site: Site) -> Path:
    """Where scratch checkouts of this repository lie."""
    return site.base / ".landing" / site.pool_dir.name


@contextmanager
def scratch_checkout(site: Site, commit: str, spec: Spec) -> Iterator[Checkout]:
    """A checkout of that commit, prepared as `spec` says, for as long as the block lasts."""
    check_patterns(spec.copy)
    plan = _plan(site, commit, spec)
    with reported("cannot make a scratch checkout"):
        make(site, [plan])
    path = Path(plan.member.path)
    try:
        # A pooled one has another name in git's records than was planned.
        yield next(each for each in _list(site) if each.path == path)
    finally:
        discard(site, path)


def _plan(site: Site, commit: str, spec: Spec) -> WorktreePlan:
    name = f"landing.{secrets.token_hex(6)}"
    record = Record(
        name=name,
        id=name,
        repo=str(site.repo.common_dir),
        branch="",
        base=commit,
        base_commit=commit,
        created_at=clock.to_text(clock.now()),
    )
    return WorktreePlan(
        spec=replace(spec, name=name, branch="", detached=True),
        member=NewWorktree(name, name, str(directory_of(site) / name), "", commit),
        record=record,
        head=commit,
        lock_reason=LOCK_REASON,
    )


def _list(site: Site) -> list[Checkout]:
    try:
        admins = sorted(site.repo.admin_dir.iterdir())
    except FileNotFoundError:
        return []
    places = [(recorded_path(each), each) for each in admins]
    here = directory_of(site)
    return [Checkout(path, each) for path, each in places if path and path.parent == here]


def discard(site: Site, path: Path) -> None:
    """Throw it away with all that is in it."""
    with reported(f"cannot throw {path} away"), locked(site.repo):
        for checkout in _list(site):
            if checkout.path == path:
                if path.exists():
                    trash.throw(path, trash.entry_for(site, f"{path.name}.{secrets.token_hex(3)}"))
                admin.drop(site.repo, checkout.admin.name)
        if path.exists():
            trash.throw(path, trash.entry_for(site, f"{path.name}.{secrets.token_hex(3)}"))
        record = find_record(site, path.name)
        if record and record.is_of(site.repo):
            drop_record(site, path.name)
        (site.records / f"{path.name}.setup.log").unlink(missing_ok=True)
    trash.empty(site)


def clear(site: Site) -> None:
    """Throw away what a hub that was killed left there."""
    here = directory_of(site)
    paths = {checkout.path for checkout in _list(site)}
    paths |= set(here.iterdir()) if here.is_dir() else set()
    for path in sorted(paths):
        discard(site, path)


def verify(
    site: Site,
    checkout: Checkout,
    command: str,
    wrap: SetupWrap,
    log: Path,
    seconds: float,
) -> Verified:
    """Run the command in its sandbox; its output goes to `log`."""
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    began = time.monotonic()
    with log.open("wb") as output, tempfile.TemporaryDirectory(prefix="bullpen-verify-") as own:
        argv: Sequence[str] = ["sh", "-c", command]
        env: Mapping[str, str] = setup_environment()
        argv, env = wrap(site.repo, checkout, Path(own), argv, env)
        try:
            done = proc.run(argv, cwd=checkout.path, env=env, timeout=seconds, output=output)
        except proc.TooMuchOutputError:
            problem = f"it wrote more than {proc.MOST_OUTPUT_BYTES >> 20} MiB"
        except BullpenError:
            if time.monotonic() - began < seconds:
                raise
            problem = f"it did not end within {seconds_text(seconds)}"
        else:
            problem = f"exit {done.code}" if done.code else ""
    tail = read_tail(log, TAIL_BYTES).decode("utf-8", "replace").strip()
    return Verified(problem, tail, time.monotonic() - began)
