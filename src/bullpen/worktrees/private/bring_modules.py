"""Brings the commits of submodules over, and keeps gitlinks out that lead nowhere.

A submodule's commits come from its git directory inside to the one at the same path outside, which
is the worktree's own and nobody else's. A commit of the repository that names one of a submodule
that is nowhere outside is refused. Called by `bring_over`, before branches move.
"""

import contextlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from bullpen.worktrees.errors import Code, WorktreeError
from bullpen.worktrees.git import git, run_raw
from bullpen.worktrees.private.store import PINS, Inside, PrivateStore
from bullpen.worktrees.private.verified_fetch import fetch_all
from bullpen.worktrees.submodules import NAME, has_commit, list_modules, module_git

MOST_TIPS = 100
# In the worktree's administrative directory, inside. HEAD first, then the rest of what is there.
# The files that their configuration names are not shown there.
LIST = f"""
find modules -type d -name objects -prune -printf '%h\\n' 2>/dev/null | while read -r module
do (
  module() {{ git --git-dir="$module" --work-tree=. "$@"; }}
  echo "MODULE $(module rev-parse -q --verify 'HEAD^{{commit}}') $module"
  module for-each-ref --count={MOST_TIPS} --format='%(objectname)' \\
    refs/heads refs/stash | while read -r oid; do echo "MODULE $oid $module"; done
); done
"""
LINE = re.compile(r"([0-9a-f]{40}(?:[0-9a-f]{24})?) modules/(.+)")
# A gitlink in `log --raw -z`, of a merge only if it is from no parent: modes, ids, state, path.
LINK = re.compile(
    r":+(?:\d{6} )+160000 (?:[0-9a-f]+ )*([0-9a-f]{40}(?:[0-9a-f]{24})?) [A-Z]+\0([^\0]*)"
)
LOG_SECONDS = 60.0


def parse_modules(lines: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Ids by name, HEAD's first. Pure. What has no name that we can use is passed over."""
    tips: dict[str, tuple[str, ...]] = {}
    for line in lines:
        match = LINE.fullmatch(line)
        if match and NAME.fullmatch(match[2]):
            tips[match[2]] = (*tips.get(match[2], ()), match[1])
    return tips


def bring_modules(
    store: PrivateStore, inside: Inside, tips: Mapping[str, tuple[str, ...]], seconds: float
) -> dict[str, str]:
    """Have these outside; why not, by name, for those that were refused."""
    refused = {}
    for name, oids in tips.items():
        module = store.admin / "modules" / name
        _make_module(store, module, name, len(oids[0]))
        new = {f"{PINS}{oid}": oid for oid in oids if not has_commit(module, oid)}
        source = store.admin / "modules" / name
        failures = fetch_all(module_git(module), inside, source, new, prefix=PINS, seconds=seconds)
        if failures:
            refused[f"modules/{name}"] = next(iter(failures.values()))
        else:
            _follow(module, oids[0])
    return refused


def _make_module(store: PrivateStore, module: Path, name: str, id_length: int) -> None:
    """One that was initialised inside. Whole, or not at all."""
    if module.exists():
        return
    aside = store.directory / "module.new"
    kind = "sha256" if id_length == 64 else "sha1"
    done = run_raw(["init", "--quiet", "--bare", f"--object-format={kind}", str(aside)])
    if done.code:
        raise WorktreeError(Code.GIT_FAILED, f"git init failed: {done.error_text}")
    git(module_git(aside), "config", "core.bare", "false")
    shared = store.common / "modules" / name / "objects"
    if shared.is_dir():
        (aside / "objects" / "info" / "alternates").write_text(f"{shared}\n")
    module.parent.mkdir(parents=True, exist_ok=True)
    aside.rename(module)


def _follow(module: Path, head: str) -> None:
    """Its HEAD and its index go where they are inside, so that git outside sees what is there."""
    words = ("rev-parse", "-q", "--verify", "HEAD")
    if git(module_git(module), *words, accept=(0, 1, 128)).text.strip() == head:
        return
    with contextlib.suppress(WorktreeError):  # somebody has its index locked: the next one does it
        git(module_git(module), "read-tree", "--reset", "-i", head, timeout=LOG_SECONDS)
        git(module_git(module), "update-ref", "--no-deref", "HEAD", head)


# ── gitlinks ─────────────────────────────────────────────────────────────────


def refuse_lost_links(store: PrivateStore, tips: Mapping[str, str]) -> dict[str, str]:
    """Why not, by name, for those of these commits that name a submodule's commit which is nowhere
    outside, in themselves or in what comes with them."""
    why = {oid: _find_lost_link(store, oid) for oid in set(tips.values())}
    return {name: why[oid] for name, oid in tips.items() if why[oid]}


def _find_lost_link(store: PrivateStore, tip: str) -> str:
    for commit, path in sorted(_new_links(store, tip)):
        if not _is_outside(store, commit):
            return (
                f"{path} is at {commit[:12]}, a submodule's commit that is nowhere outside"
                f" (git submodule update --init {path}, or take it out)"
            )
    return ""


def _new_links(store: PrivateStore, tip: str) -> set[tuple[str, str]]:
    words = ("log", "--raw", "-z", "-c", "--no-abbrev", "--no-renames", "--root", "--format=")
    known = ("--not", "--exclude=refs/bullpen/*", "--all")
    options = ("--ignore-submodules=none", tip, *known)
    return parse_links(git(store.repo, *words, *options, timeout=LOG_SECONDS).text)


def parse_links(text: str) -> set[tuple[str, str]]:
    """Ids and paths of the gitlinks that a log names. Pure."""
    return {(match[1], match[2]) for match in LINK.finditer(text)}


def _is_outside(store: PrivateStore, commit: str) -> bool:
    roots = (store.admin / "modules", store.common / "modules")
    return any(has_commit(root / name, commit) for root in roots for name in list_modules(root))
