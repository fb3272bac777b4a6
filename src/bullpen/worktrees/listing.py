"""Lists worktrees: git's own list, parsed once, together with our records."""

import contextlib
import contextvars
import itertools
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from bullpen.worktrees import journal
from bullpen.worktrees.admin import lock_reason
from bullpen.worktrees.branches import swarm_created_at
from bullpen.worktrees.errors import WorktreeError, reported
from bullpen.worktrees.git import git, resolve
from bullpen.worktrees.journal import Making
from bullpen.worktrees.plain import check_listed, read_commit, read_head
from bullpen.worktrees.private.store import PrivateStore, load_state, store_of
from bullpen.worktrees.records import Record, find_record
from bullpen.worktrees.site import Site, is_name, list_checkouts, sites_in
from bullpen.worktrees.state import get_checkout, list_changes

T = TypeVar("T")

LIST = ("worktree", "list", "--porcelain", "-z")
LOOKS = 20
AT_ONCE = 4
GIT_DIED = 128
LOCK_LIFTED = re.compile(r"/locked': No such file or directory")


@dataclass(frozen=True)
class Listed:
    """One entry of `git worktree list`."""

    path: Path
    head: str = ""  # empty when bare
    branch: str = ""  # empty when detached
    bare: bool = False
    locked: str | None = None  # the reason, perhaps empty; None when not locked
    prunable: str | None = None

    @property
    def name(self) -> str:
        return self.path.name


@dataclass(frozen=True)
class Info:
    """All that is known of one managed worktree."""

    name: str
    path: Path
    branch: str
    head: str
    base: str  # what `ahead` and `behind` are measured against: where its work goes
    role: str
    parent: str
    depth: int
    locked: str | None
    created_at: datetime | None
    changes: tuple[str, ...]
    ahead: int
    behind: int
    ports: tuple[int, ...] = ()  # of its own
    where: str = ""  # its agent works, if that has a git of its own and is not on its branch

    @property
    def dirty(self) -> bool:
        return bool(self.changes)


def list_all(site: Site) -> list[Listed]:
    """Every worktree of the repository, the main one first."""
    with reported("cannot list worktrees"):
        check_listed(site.repo)
        return parse(_ask_git(site))


def _ask_git(site: Site) -> str:
    """What git lists. It dies of a lock that is lifted between its look at the file and its reading
    (a plain `git worktree list` beside `git worktree unlock` does, too): then it looks again."""
    for _ in range(LOOKS - 1):
        done = git(site.repo, *LIST, accept=(0, GIT_DIED))
        if done.code == 0:
            return done.text
        if not LOCK_LIFTED.search(done.error_text):
            break
    return git(site.repo, *LIST).text


def list_managed(site: Site) -> list[Listed]:
    """Those under the base, without what is still being made."""
    unborn = {
        member.path
        for intent in journal.list_pending(site.repo)
        if isinstance(intent, Making)
        for member in intent.members
    }
    with reported("cannot list worktrees"):
        entries = _read_all(site)
    return [
        entry
        for entry in (list_all(site) if entries is None else entries)
        if entry.path.parent == site.base and is_name(entry.name) and str(entry.path) not in unborn
    ]


def _read_all(site: Site) -> list[Listed] | None:
    """Those under the base in git's order, from git's files; None where git has to be asked what
    they mean: refs that are packed, a repository that is none. Saves a process."""
    entries = []
    for checkout in list_checkouts(site.repo):
        if checkout.path.parent != site.base:
            continue
        try:
            text = read_head(site.repo, checkout)
        except WorktreeError:
            return None
        commit, branch = read_commit(site.repo, text), text.removeprefix("ref: refs/heads/")
        if not commit or branch.startswith("ref: "):
            return None
        locked = lock_reason(checkout.admin)
        branch = "" if branch == text else branch
        entries.append(Listed(checkout.path, commit, branch, locked=locked))
    return sorted(entries, key=lambda entry: os.fsencode(entry.path)) or None


def parse(text: str) -> list[Listed]:
    """`git worktree list --porcelain -z`: attributes end in NUL, entries in an empty one."""
    entries = []
    for block in text.split("\0\0"):
        fields = dict(line.partition(" ")[::2] for line in block.split("\0") if line)
        if "worktree" not in fields:
            continue
        entries.append(
            Listed(
                path=Path(fields["worktree"]),
                head=fields.get("HEAD", ""),
                branch=fields.get("branch", "").removeprefix("refs/heads/"),
                bare="bare" in fields,
                locked=fields.get("locked"),
                prunable=fields.get("prunable"),
            )
        )
    return entries


def info(site: Site, name: str) -> Info:
    """One worktree in full."""
    with reported(f"cannot look at {name}"):
        path = get_checkout(site, name).path
        return describe(site, next(entry for entry in list_all(site) if entry.path == path))


def describe(site: Site, listed: Listed) -> Info:
    """The same for one that was listed just now."""
    with reported(f"cannot look at {listed.name}"):
        record = find_record(site, listed.name)
        records = {listed.name: record} if record else {}
        return _describe(site, listed, record, lambda: find_bases(site, records))


def describe_everywhere(site: Site, bases: Iterable[Path]) -> list[tuple[Listed, Info | str]]:
    """Those of the site, then those of other bases."""
    return [row for each in sites_in(site, bases) for row in describe_all(each)]


def describe_all(site: Site) -> list[tuple[Listed, Info | str]]:
    """Each managed worktree, or what is wrong with it: one broken entry must not hide the others.
    Git is asked once for the bases of all of them, while it looks at their files."""
    from concurrent.futures import ThreadPoolExecutor  # commands that need none start faster

    entries = list_managed(site)
    records = {entry.name: _try(find_record, site, entry.name) for entry in entries}
    known = {name: record for name, record in records.items() if isinstance(record, Record)}

    def look(entry: Listed) -> Info | str:
        record = records[entry.name]
        if isinstance(record, str):
            return record
        return _try(_describe, site, entry, record, bases.result)

    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        # Each in the caller's context, which says whether programs are still wanted.
        context = contextvars.copy_context
        bases = pool.submit(context().run, find_bases, site, known)  # first: the others wait for it
        looks = [pool.submit(context().run, look, entry) for entry in entries]
        return [(entry, each.result()) for entry, each in zip(entries, looks, strict=True)]


def _try(look: Callable[..., T], site: Site, what: Any, *words: Any) -> T | str:
    """What it found, or what is wrong."""
    name = what if isinstance(what, str) else what.name
    try:
        with reported(f"cannot look at {name}"):
            return look(site, what, *words)
    except WorktreeError as error:
        return error.message


def _describe(
    site: Site, listed: Listed, record: Record | None, bases: Callable[[], Mapping[str, str]]
) -> Info:
    """`bases` is asked when the files have been looked at."""
    checkout = get_checkout(site, listed.name)
    commit = listed.head if listed.head.strip("0") else ""  # zeros: `checkout --orphan`
    changes = tuple(list_changes(site.repo, checkout))
    base = bases().get(listed.name, "") if commit else ""
    ahead, behind = count_ahead_behind(site, commit, base) if base else (0, 0)
    return Info(
        name=listed.name,
        path=checkout.path,
        branch=listed.branch,
        head=commit,
        base=record.target if record else "",
        role=record.role if record else "",
        parent=record.parent if record else "",
        depth=record.depth if record else 0,
        locked=listed.locked,
        created_at=created_at(site, listed, record),
        changes=changes,
        ahead=ahead,
        behind=behind,
        ports=tuple(record.ports.ports) if record and record.ports else (),
        where=_where(store_of(site.repo.common_dir, checkout.admin, checkout.path)),
    )


def _where(store: PrivateStore) -> str:
    with contextlib.suppress(WorktreeError):  # a state that nobody can read
        return load_state(store).where if store.exists else ""
    return ""


def created_at(site: Site, listed: Listed, record: Record | None) -> datetime | None:
    """From the branch's name in a swarm (milliseconds or seconds), else from the record."""
    if record and record.role:
        digits = swarm_created_at(listed.branch, record.role, site.branch_prefix)
        if digits:
            seconds = digits / 1000 if digits > 10**11 else digits
            return datetime.fromtimestamp(min(seconds, 2**32), UTC)
    return record.created if record else None


def find_bases(site: Site, records: Mapping[str, Record]) -> dict[str, str]:
    """The commits that worktrees are compared with, by name: that of where their work goes, else of
    their base, or where they left it if that is gone; empty if there is none. One process for
    all."""
    texts = {
        name: (record.target, record.base, record.base_commit) for name, record in records.items()
    }
    candidates = {
        name: [f"{text}^{{commit}}" for text in each if text] for name, each in texts.items()
    }
    commits = resolve(site.repo, list(dict.fromkeys(itertools.chain(*candidates.values()))))
    return {
        name: next((commit for text in texts if (commit := commits[text])), "")
        for name, texts in candidates.items()
    }


def count_ahead_behind(site: Site, commit: str, base: str) -> tuple[int, int]:
    """Commits that one has and the other has not, and the other way round."""
    if commit == base:
        return 0, 0
    words = ("rev-list", "--left-right", "--count", f"{commit}...{base}")
    ahead, behind = git(site.repo, *words, timeout=600).text.split()
    return int(ahead), int(behind)
