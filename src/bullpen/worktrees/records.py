"""What Bullpen knows of a worktree and git does not: `<base>/.records/<name>.json`.

Whose branch it is, where it started, which role and parent it has. A record
outlives its worktree as long as its branch is kept, so that `ensure` can tell a
branch of ours from a stranger's.
"""

import contextlib
import json
from dataclasses import asdict, dataclass
from datetime import datetime

from bullpen import clock
from bullpen.files import write_atomically
from bullpen.worktrees.errors import Code, WorktreeError
from bullpen.worktrees.git import Repository
from bullpen.worktrees.site import Site, path_for


@dataclass(frozen=True)
class Record:
    """One worktree's birth certificate."""

    name: str
    id: str  # of git's administrative directory; tells one life of a name from the next
    repo: str
    branch: str  # birth branch; empty when detached
    base: str  # the ref it started from
    base_commit: str
    created_at: str
    role: str = ""
    parent: str = ""
    depth: int = 0
    made_for: str = ""  # what its maker wrote on it

    @property
    def created(self) -> datetime:
        return clock.from_text(self.created_at)

    def is_of(self, repo: Repository) -> bool:
        return self.repo == str(repo.common_dir)


def find_record(site: Site, name: str) -> Record | None:
    """The record of that name, whichever repository it belongs to."""
    path = site.records / f"{path_for(site, name).name}.json"
    try:
        return from_json(path.read_text(encoding="utf-8", errors="surrogateescape"))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, AttributeError) as error:
        raise WorktreeError(
            Code.WORKTREE_CORRUPT, f"cannot read {path}: {error}", hint=f"delete it: rm {path}"
        ) from error


def write_record(site: Site, record: Record) -> None:
    """Replace the record of that name."""
    site.records.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomically(site.records / f"{record.name}.json", to_json(record), mode=0o600)


def drop_record(site: Site, name: str) -> None:
    """Forget the name; nothing to forget is fine."""
    with contextlib.suppress(FileNotFoundError):
        (site.records / f"{name}.json").unlink()


def to_json(record: Record) -> str:
    """One line of JSON."""
    return json.dumps(asdict(record))


def from_json(text: str) -> Record:
    """The inverse; unknown keys of a later version are passed over."""
    fields = Record.__dataclass_fields__
    return Record(**{key: value for key, value in json.loads(text).items() if key in fields})
