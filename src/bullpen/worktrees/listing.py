"""What worktrees there are: git's own list, parsed once, with our records beside it."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bullpen.worktrees import journal
from bullpen.worktrees.branches import swarm_created_at
from bullpen.worktrees.errors import reported
from bullpen.worktrees.git import Checkout, git, resolve
from bullpen.worktrees.journal import Making
from bullpen.worktrees.records import Record, find_record
from bullpen.worktrees.site import Site, is_name
from bullpen.worktrees.state import get_checkout, list_changes


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
    base: str
    role: str
    parent: str
    depth: int
    locked: str | None
    created_at: datetime | None
    changes: tuple[str, ...]
    ahead: int
    behind: int

    @property
    def dirty(self) -> bool:
        return bool(self.changes)


def list_all(site: Site) -> list[Listed]:
    """Every worktree of the repository, the main one first."""
    with reported("cannot list worktrees"):
        done = git(site.repo, "worktree", "list", "--porcelain", "-z")
        return parse(done.text)


def list_managed(site: Site) -> list[Listed]:
    """Those under the base, without what is still being made."""
    unborn = {
        member.path
        for intent in journal.list_pending(site.repo)
        if isinstance(intent, Making)
        for member in intent.members
    }
    return [
        entry
        for entry in list_all(site)
        if entry.path.parent == site.base and is_name(entry.name) and str(entry.path) not in unborn
    ]


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
        checkout = get_checkout(site, listed.name)
        record = find_record(site, listed.name)
        commit = listed.head if listed.head.strip("0") else ""  # zeros: `checkout --orphan`
        ahead, behind = count_ahead_behind(site, checkout, record) if commit else (0, 0)
        return Info(
            name=listed.name,
            path=checkout.path,
            branch=listed.branch,
            head=commit,
            base=record.base if record else "",
            role=record.role if record else "",
            parent=record.parent if record else "",
            depth=record.depth if record else 0,
            locked=listed.locked,
            created_at=created_at(site, listed, record),
            changes=tuple(list_changes(site.repo, checkout)),
            ahead=ahead,
            behind=behind,
        )


def created_at(site: Site, listed: Listed, record: Record | None) -> datetime | None:
    """From the branch's name in a swarm (milliseconds or seconds), else from the record."""
    if record and record.role:
        digits = swarm_created_at(listed.branch, record.role, site.branch_prefix)
        if digits:
            seconds = digits / 1000 if digits > 10**11 else digits
            return datetime.fromtimestamp(min(seconds, 2**32), UTC)
    return record.created if record else None


def count_ahead_behind(site: Site, checkout: Checkout, record: Record | None) -> tuple[int, int]:
    """Commits that the worktree has and its base has not, and the other way round."""
    candidates = [record.base, record.base_commit] if record else []
    found = resolve(site.repo, [f"{text}^{{commit}}" for text in candidates if text])
    base = next((commit for commit in found.values() if commit), None)
    if base is None:
        return 0, 0
    done = git(
        site.repo, "rev-list", "--left-right", "--count", f"HEAD...{base}", at=checkout, timeout=600
    )
    ahead, behind = done.text.split()
    return int(ahead), int(behind)
