"""What Bullpen knows of a worktree and git does not: `<base>/.records/<name>.json`.

Its branch, base, role, parent and ports. A record outlives its worktree as long as its branch
exists, so that `ensure` can tell our branch from somebody else's.
"""

import contextlib
import json
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from bullpen import clock
from bullpen.files import write_atomically
from bullpen.worktrees.errors import Code, WorktreeError
from bullpen.worktrees.git import Repository
from bullpen.worktrees.port_blocks import MOST_PORTS, Block
from bullpen.worktrees.site import RECORDS, Site, is_name, path_for

MOST_PORT = 65535


@dataclass(frozen=True)
class Record:
    """What was known when the worktree was made."""

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
    lands_in: str = ""  # where its work goes, if that is not its base
    first_port: int = 0  # of the block that is its own while its directory is there
    port_count: int = 0

    @property
    def created(self) -> datetime:
        return clock.from_text(self.created_at)

    @property
    def target(self) -> str:
        """The ref that its work is measured against."""
        return self.lands_in or self.base

    @property
    def ports(self) -> Block | None:
        """None also for what cannot be a block: safety copies can be written by agents."""
        first, count = self.first_port, self.port_count
        if not (isinstance(first, int) and isinstance(count, int) and 1 <= count <= MOST_PORTS):
            return None
        return Block(first, count) if 1 <= first <= MOST_PORT - count + 1 else None

    def is_of(self, repo: Repository) -> bool:
        return self.repo == str(repo.common_dir)


def find_record(site: Site, name: str) -> Record | None:
    """The record of that name, whichever repository it belongs to."""
    return _read(site.records / f"{path_for(site, name).name}.json")


def find_repository(base: Path, name: str) -> Path | None:
    """The repository of the worktree of that name: its git directory, wherever one stands."""
    record = _read(base / RECORDS / f"{name}.json") if is_name(name) else None
    return Path(record.repo) if record else None


def find_record_of(path: Path) -> Record | None:
    """The record of the worktree at that path, in whichever base."""
    return _read(path.parent / RECORDS / f"{path.name}.json") if is_name(path.name) else None


def list_records(base: Path) -> list[Record]:
    """Those of all repositories that have, or had, worktrees there."""
    records = [_read(path) for path in sorted((base / RECORDS).glob("*.json"))]
    return [record for record in records if record]


def list_repositories(base: Path) -> list[Path]:
    """Those that have worktrees there."""
    return list(dict.fromkeys(Path(record.repo) for record in list_records(base)))


def _read(path: Path) -> Record | None:
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
