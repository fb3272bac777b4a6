"""What was done in a checkout since a commit: what is committed, and what is not, apart.

Changes neither the index nor the repository. An agent may have written anything into the checkout:
so git gets its directories from `verify_checkout`, called before the agent worked; it runs nothing
that the tree names; and the output of each part is cut at a limit of its own. The files are saved
as a tree first, and all that is shown is the difference of two trees, in an empty directory: no
`.gitattributes` of the agent's says how. Called by `hub/tasks`.
"""

import contextlib
import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bullpen.errors import BullpenError
from bullpen.files import read_plain
from bullpen.worktrees.commits import Commits, commits_since, plain_line
from bullpen.worktrees.errors import WorktreeError
from bullpen.worktrees.git import Checkout, Repository, open_repository, run_raw
from bullpen.worktrees.own_index import STAGED, Look, find_head, look_at, second_index
from bullpen.worktrees.plain import check_repository
from bullpen.worktrees.tree_diff import MOST_FILE_BYTES, Trees, list_of, quoted

MOST_FILES, MOST_NAMES_BYTES = 1000, 1 << 17
PATH_BYTES = 1 << 13
SECONDS = 60.0
HEADLESS = "# HEAD names no commit\n"


@dataclass(frozen=True)
class Changes:
    """Texts for people. `log` names each commit with its files, so that what a later commit took
    back is seen; `committed` is the difference of the first and the last commit; `uncommitted`
    that of the last commit and the files; `staged` what the index has other than both. Of a part
    that could not be looked at, its text says why."""

    commits: Commits
    log: str
    committed: str
    uncommitted: str
    staged: str


@dataclass(frozen=True)
class VerifiedCheckout:
    """A checkout whose git directory was verified. Git is given these paths, so that it does not
    read what an agent may have written into the checkout since."""

    repo: Repository
    root: Path

    @property
    def checkout(self) -> Checkout:
        return Checkout(self.root, self.repo.git_dir)

    @property
    def is_main(self) -> bool:
        """Not a linked worktree: its git directory lies in it."""
        return self.repo.git_dir == self.repo.common_dir


def verify_checkout(directory: Path) -> VerifiedCheckout | None:
    """The checkout whose root is that directory; None if it is none. Call it before an agent
    works there: afterwards its `.git` may be planted and name another repository."""
    if not (directory / ".git").exists():
        return None
    with contextlib.suppress(WorktreeError):
        check_repository(directory / ".git")
        repo = open_repository(directory)
        checkout = VerifiedCheckout(repo, directory.resolve())
        is_known = _is_main_of if checkout.is_main else _is_linked
        if repo.root == checkout.root and is_known(repo, checkout.root):
            return checkout
    return None


def _is_main_of(repo: Repository, root: Path) -> bool:
    """Whether the repository lies in `root`, or names it as its work tree, as those of
    submodules do. A `.git` file alone proves nothing: an agent can write one that names another
    repository."""
    if repo.git_dir == root / ".git":
        return True
    done = run_raw(["config", "--file", repo.git_dir / "config", "core.worktree"])
    text = os.fsdecode(done.out).removesuffix("\n")
    return bool(text) and (repo.git_dir / text).resolve() == root


def _is_linked(repo: Repository, root: Path) -> bool:
    """Whether the repository knows of that worktree, too: a `.git` file alone proves nothing, nor
    does one that leads to an administrative directory outside of the repository it names."""
    if repo.git_dir.parent != repo.common_dir / "worktrees" or repo.common_dir.is_relative_to(root):
        return False
    try:
        text = os.fsdecode(read_plain(repo.git_dir / "gitdir", PATH_BYTES)).strip()
    except OSError:
        return False
    back = Path(os.path.normpath(repo.git_dir / text))  # relative in some repositories
    return back.name == ".git" and back.parent.resolve() == root


def head_of(checkout: VerifiedCheckout) -> str:
    """The commit of HEAD; empty before the first commit."""
    return find_head(checkout.repo, checkout.checkout, SECONDS)


def snapshot(checkout: VerifiedCheckout, objects: Path) -> str:
    """Save what is changed and not committed now, so that it is not counted as a later change.
    Returns the id of its tree, empty if nothing is changed. Its objects are written to
    `objects`, and beside them what was learnt about the files."""
    with _looking(checkout, objects) as look:
        files = _split(checkout.root, look.changed())
        if not files.present and not files.gone:
            return ""
        objects.mkdir(mode=0o700, parents=True, exist_ok=True)
        with second_index(look) as index:
            return _write_tree(look, index, files, objects)


def changes_since(
    checkout: VerifiedCheckout, base: str, before: str = "", objects: Path | None = None
) -> Changes:
    """What is committed since `base`, and what is not, with new files that are not ignored; if
    `before` names the tree of a `snapshot`, without what was there then. Raises only if it cannot
    look at all."""
    with _looking(checkout, objects) as look, second_index(look) as index:
        scratch, empty = index.with_name("objects"), index.with_name("empty")
        for directory in (scratch, empty):
            directory.mkdir()
        trees = Trees(look, empty, (scratch, *([objects] if objects and objects.exists() else [])))
        uncommitted, files_tree = _uncommitted(trees, index, base, before)
        return Changes(
            commits=commits_since(look, base),
            log=_text_or_problem(lambda: trees.log(base)) if look.head else "",
            committed=_text_or_problem(lambda: trees.diff(base, look.head))
            if look.head
            else HEADLESS,
            uncommitted=uncommitted,
            staged=_text_or_problem(lambda: _staged(trees, files_tree)),
        )


@dataclass(frozen=True)
class FileCount:
    """How many lines of one file differ; None of a binary one."""

    name: str
    added: int | None
    deleted: int | None


@dataclass(frozen=True)
class Compared:
    """The same as `Changes`, with the lines of each file counted."""

    commits: Commits
    committed: str
    uncommitted: str
    staged: str
    committed_files: tuple[FileCount, ...]
    uncommitted_files: tuple[FileCount, ...]


def compare(checkout: VerifiedCheckout, base: str) -> Compared:
    """What is committed since `base`, and what is not, file by file."""
    with _looking(checkout, None) as look, second_index(look) as index:
        scratch, empty = index.with_name("objects"), index.with_name("empty")
        for directory in (scratch, empty):
            directory.mkdir()
        trees = Trees(look, empty, (scratch,))
        uncommitted, files_tree = _uncommitted(trees, index, base, "")
        return Compared(
            commits=commits_since(look, base),
            committed=_text_or_problem(lambda: trees.diff(base, look.head))
            if look.head
            else HEADLESS,
            uncommitted=uncommitted,
            staged=_text_or_problem(lambda: _staged(trees, files_tree)),
            committed_files=_count(trees, base, look.head),
            uncommitted_files=_count(trees, look.head, files_tree),
        )


def _count(trees: Trees, old: str, new: str) -> tuple[FileCount, ...]:
    if not old or not new:
        return ()
    rows = (entry.split("\t", 2) for entry in trees.numstat(old, new).split("\0") if entry)
    return tuple(FileCount(row[2], _lines(row[0]), _lines(row[1])) for row in rows)


def _lines(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def unknown_changes(why: str) -> Changes:
    """Where nobody can look: each part says so."""
    text = _cannot_tell(why)
    return Changes(Commits(), text, text, text, "")


def _looking(
    checkout: VerifiedCheckout, objects: Path | None
) -> contextlib.AbstractContextManager[Look]:
    cache = objects.with_name("indexes") if objects and checkout.is_main else None
    return look_at(checkout.repo, checkout.checkout, seconds=SECONDS, cache=cache)


def _text_or_problem(part: Callable[[], str]) -> str:
    """What goes wrong with one part does not hide the others, and is not nothing."""
    try:
        return part()
    except (BullpenError, OSError) as error:
        return _failed(error)


def _failed(error: BullpenError | OSError) -> str:
    return _cannot_tell(error.message if isinstance(error, BullpenError) else str(error))


def _cannot_tell(why: str) -> str:
    return f"# cannot tell: {plain_line(why.encode(errors='replace'))}\n"


# ── what is not committed ──


def _uncommitted(trees: Trees, index: Path, base: str, before: str) -> tuple[str, str]:
    """The text, and the tree of all files; empty if that could not be made."""
    look, scratch = trees.look, trees.objects[0]
    try:
        start = _starting_point(trees, index, base, before)
        files = _split(look.own.path, look.changed(index))
        tree = _write_tree(look, index, files, scratch, trees.objects[1:])
        others = list_of(files.others, "changed, and not shown")
        return trees.diff(start, tree) + others, tree
    except (BullpenError, OSError) as error:
        return _failed(error), ""


def _starting_point(trees: Trees, index: Path, base: str, before: str) -> str:
    """What the files are compared with, as a tree and in the index: the last commit; but what was
    changed before, and is in no commit since, is as it was then."""
    look, env = trees.look, _objects_env(trees.look, index, *trees.objects)
    if before and look.head:
        look.git("read-tree", "-m", "-i", before, env=env)
        raw = look.git("diff-tree", "-r", "-z", "--no-renames", "--raw", base, look.head).out
        fields = raw.split(b"\0")
        entries = [
            b"%b %b\t%b" % (meta.split(b" ")[1], meta.split(b" ")[3], name)
            for meta, name in zip(fields[::2], fields[1::2], strict=False)
        ]
        if entries:
            stdin = b"\0".join(entries) + b"\0"
            look.git("update-index", "-z", "--index-info", stdin=stdin, env=env)
    return look.git("write-tree", env=env).text.strip()


def _staged(trees: Trees, files_tree: str) -> str:
    """What the agent's index has other than the last commit and the files: a `git commit` there
    would commit it."""
    look = trees.look
    names = look.staged()
    if not names:
        return ""
    env = _objects_env(look, look.staged_index, *trees.objects)
    if files_tree:
        others = look.git(*STAGED, files_tree, env=env).text.split("\0")
        names = [name for name in names if name in set(others)]
    if not names:
        return ""
    tree = look.git("write-tree", "--missing-ok", env=env).text.strip()
    return trees.diff(look.head, tree, names[:MOST_FILES]) + list_of(
        [os.fsencode(name) for name in names[MOST_FILES:]], "staged, and not shown"
    )


def _objects_env(look: Look, index: Path, scratch: Path, *more: Path) -> dict[str, str]:
    """For a git that writes objects to a directory of ours."""
    common = look.repo.common_dir / "objects"
    return {
        "GIT_INDEX_FILE": str(index),
        "GIT_OBJECT_DIRECTORY": str(scratch),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": quoted((common, *more)),
    }


# ── files as a tree ──


@dataclass(frozen=True)
class ChangedFiles:
    """Names of changed files: those that git may read, those that are gone, and the others, which
    are only named: pipes, devices, repositories inside, files that are too large or too many."""

    present: list[bytes] = field(default_factory=list)
    gone: list[bytes] = field(default_factory=list)
    others: list[bytes] = field(default_factory=list)


def _split(root: Path, names: Iterable[str]) -> ChangedFiles:
    files, room = ChangedFiles(), MOST_NAMES_BYTES
    for text in dict.fromkeys(names):
        name = os.fsencode(text)
        room -= len(name)
        is_full = room <= 0 or len(files.present) + len(files.gone) >= MOST_FILES
        kind = files.others if is_full else _kind(files, root, text)
        kind.append(name)
    return files


def _kind(files: ChangedFiles, root: Path, name: str) -> list[bytes]:
    path = root / name
    try:
        status = path.lstat()
        is_here = path.parent.resolve() == root / Path(name).parent
    except (FileNotFoundError, NotADirectoryError):
        return files.gone
    except (OSError, RuntimeError):
        return files.others
    if not is_here:
        return files.gone  # behind a link, where git sees nothing
    is_small = stat.S_ISREG(status.st_mode) and status.st_size <= MOST_FILE_BYTES
    return files.present if is_small or stat.S_ISLNK(status.st_mode) else files.others


def _write_tree(
    look: Look, index: Path, files: ChangedFiles, objects: Path, more: Iterable[Path] = ()
) -> str:
    """The tree of the index with these files."""
    env = _objects_env(look, index, objects, *more)
    for names, how in ((files.gone, "--force-remove"), (files.present, "--add")):
        if names:
            words = ("update-index", how, "--remove", "--replace", "-z", "--stdin")
            look.git(*words, stdin=b"\0".join(names), env=env)
    return look.git("write-tree", env=env).text.strip()
