"""The submodules of a worktree: initialised when it is made, judged before it is removed.

As git does it, each has a git directory of its own in the worktree's administrative directory
(`modules/<name>`). Its objects are borrowed from the repository's own `modules/<name>`, if that is
there; else they are fetched from the addresses that the person's own checkout was initialised with:
an agent can write `.gitmodules`, and must not choose what is fetched with the person's keys, also
not when its branch has been merged. What cannot be had stays an empty directory, as it is without
this.

Called by `create` and `remove`. What agents commit in them is brought over by
`private/bring_modules`.
"""

import logging
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from bullpen.worktrees.errors import Code, WorktreeError
from bullpen.worktrees.git import CHECKOUT_SECONDS, Checkout, Repository, git, run_raw
from bullpen.worktrees.own_index import look_at
from bullpen.worktrees.site import points_to

log = logging.getLogger("bullpen.worktrees")

FETCH_SECONDS = 120.0
MOST_DEPTH = 5  # of submodules within submodules
MOST_MODULES = 200
PART = r"(?!(?:objects|refs|hooks|info|logs|worktrees)(?:/|$))[\w+-][\w.+-]*"
NAME = re.compile(f"{PART}(?:/{PART})*")
# Of those that were saved. The stash by a pattern: a name would have to be there.
ALL = (
    "+refs/heads/*:refs/bullpen/in/*",
    "+refs/bullpen/in/*:refs/bullpen/in/*",
    "+refs/tags/*:refs/tags/*",
    "+refs/stas*:refs/bullpen/saved-stas*",
)
# A submodule's address is never the person's own word: git then refuses paths of this machine.
NOT_ASKED_FOR = {"GIT_PROTOCOL_FROM_USER": "0"}


@dataclass(frozen=True)
class Submodule:
    """One of a commit."""

    name: str
    path: str
    commit: str
    url: str


def module_git(directory: Path) -> Repository:
    """A submodule's git directory, to run git on."""
    return Repository(directory, directory, None)


def list_modules(modules: Path) -> list[str]:
    """Names of the git directories in there, also of those within others."""
    names = []
    for directory, below, _ in os.walk(modules):
        if "objects" in below:
            names.append(str(Path(directory).relative_to(modules)))
            below[:] = [name for name in below if name == "modules"]
    return sorted(names)[:MOST_MODULES]


# ── making ───────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Sources:
    """Where the objects of submodules may come from."""

    shared: Path  # the repository's own `modules`
    saved: Path | None  # those of a worktree that was removed
    trusted: frozenset[str]  # addresses

    def within(self, name: str) -> "Sources":
        """For the submodules of a submodule."""
        shared, saved = (each / name / "modules" if each else None for each in self.both)
        return Sources(shared or self.shared, saved, self.trusted)

    @property
    def both(self) -> tuple[Path, Path | None]:
        return self.shared, self.saved


def initialise(
    repo: Repository, checkout: Checkout, commit: str, saved: Path | None = None
) -> None:
    """Have the files of all submodules there. One that cannot be had keeps no other back."""
    if git(repo, "cat-file", "-e", f"{commit}:.gitmodules", accept=(0, 1, 128)).code == 0:
        sources = Sources(repo.common_dir / "modules", saved, frozenset(_trusted_urls(repo)))
        _initialise(repo, checkout, commit, sources, MOST_DEPTH)


def _initialise(
    repo: Repository, checkout: Checkout, commit: str, sources: Sources, depth: int
) -> None:
    for module in list_submodules(repo, commit) if depth else ():
        at = Checkout(checkout.path / module.path, checkout.admin / "modules" / module.name)
        if at.path.resolve() == at.path and _make(module, at, sources):
            inner = module_git(at.admin), at, module.commit, sources.within(module.name)
            _initialise(*inner, depth - 1)


def _make(module: Submodule, at: Checkout, sources: Sources) -> bool:
    """Have that one there, with what was saved of it; whether it is."""
    is_there = at.admin.exists()
    if not is_there and (not at.path.is_dir() or any(at.path.iterdir())):
        return False
    try:
        if is_there:
            _fetch_saved(module, at, sources)
            return True
        _clone(module, at, sources)
        if has_commit(at.admin, module.commit):
            git(module_git(at.admin), "update-ref", _known(module), module.commit)
        _fetch_saved(module, at, sources)
        _check_out(module, at, sources)
    except (OSError, WorktreeError) as error:
        log.warning("submodule left out", extra={"path": module.path, "why": str(error)})
        if not is_there:
            shutil.rmtree(at.admin, ignore_errors=True)
            shutil.rmtree(at.path)
            at.path.mkdir()
        return is_there
    return True


def _clone(module: Submodule, at: Checkout, sources: Sources) -> None:
    shared, is_trusted = sources.shared / module.name, module.url in sources.trusted
    is_shared = shared.is_dir()
    if not is_shared and not is_trusted:
        raise WorktreeError(
            Code.NOT_A_REPO,
            f"your own checkout does not have it from {module.url}",
            hint="git submodule update --init, in your own checkout",
        )
    at.admin.parent.mkdir(parents=True, exist_ok=True)
    origin = ("--shared", str(shared)) if is_shared else (module.url,)
    words = ("clone", "--quiet", "--no-checkout", "--separate-git-dir", str(at.admin), *origin)
    env = {} if is_shared else NOT_ASKED_FOR
    done = run_raw([*words, str(at.path)], env=env, timeout=FETCH_SECONDS)
    if done.code:
        raise WorktreeError(Code.GIT_FAILED, f"git clone failed: {done.error_text}")
    inside = module_git(at.admin)
    if is_shared:
        url = git(module_git(shared), "config", "remote.origin.url", accept=(0, 1)).text.strip()
        git(inside, "config", "remote.origin.url", url or module.url)


def _fetch_saved(module: Submodule, at: Checkout, sources: Sources) -> None:
    saved = sources.saved / module.name if sources.saved else None
    if saved and saved.is_dir():
        words = ("fetch", "--quiet", "--no-tags", str(saved), "+HEAD:refs/bullpen/saved", *ALL)
        git(module_git(at.admin), *words)


def _check_out(module: Submodule, at: Checkout, sources: Sources) -> None:
    inside = module_git(at.admin)
    if module.url in sources.trusted and not has_commit(at.admin, module.commit):
        what = f"{module.commit}:{_known(module)}"
        fetch = ("fetch", "--quiet", "--no-recurse-submodules", "origin", what)
        git(inside, *fetch, env=NOT_ASKED_FOR, timeout=FETCH_SECONDS)
    checkout = ("checkout", "--quiet", "--force", "--detach", "--no-recurse-submodules")
    git(inside, *checkout, module.commit, at=at, timeout=CHECKOUT_SECONDS)


def _known(module: Submodule) -> str:
    """A name for the commit that it was made at, among those of remotes: it came from elsewhere. No
    branch of its remote may have it, and without a name it would count as work for ever."""
    return f"refs/remotes/bullpen/{module.commit}"


def has_commit(module: Path, commit: str) -> bool:
    """Whether it lies in that git directory."""
    words = ("cat-file", "-e", f"{commit}^{{commit}}")
    return git(module_git(module), *words, accept=(0, 1, 128)).code == 0


def list_submodules(repo: Repository, commit: str) -> list[Submodule]:
    """Those of a commit that `.gitmodules` names, and that have names as we can use them."""
    values = _settings(repo, commit)
    names = {value: key[:-5] for key, value in values.items() if key.endswith(".path")}
    entries = git(repo, "ls-tree", "-r", "-z", "--full-tree", commit).text.split("\0")
    links = [entry.split(None, 3) for entry in entries if entry.startswith("160000 ")]
    base = git(repo, "config", "remote.origin.url", accept=(0, 1)).text.strip()
    return [
        Submodule(names[path], path, oid, resolve_url(values.get(f"{names[path]}.url", ""), base))
        for _, _, oid, path in links[:MOST_MODULES]
        if NAME.fullmatch(names.get(path, ""))
    ]


def _settings(repo: Repository, commit: str) -> dict[str, str]:
    """`<name>.path` and `<name>.url` of its `.gitmodules`."""
    pattern = r"^submodule\..*\.(path|url)$"
    words = ("config", "-z", "--blob", f"{commit}:.gitmodules", "--get-regexp", pattern)
    lines = git(repo, *words, accept=(0, 1, 128)).text.split("\0")
    rows = (line.removeprefix("submodule.").partition("\n") for line in lines if line)
    return {key: value for key, _, value in rows}


def _trusted_urls(repo: Repository) -> list[str]:
    """What `git submodule init` wrote when the person called it. Not `.gitmodules` of the checkout:
    a merged branch of an agent wrote that."""
    own = Repository(repo.common_dir, repo.common_dir, None)
    pattern = r"^submodule\..*\.url$"
    lines = git(own, "config", "-z", "--get-regexp", pattern, accept=(0, 1)).text.split("\0")
    return [line.partition("\n")[2] for line in lines if line]


def resolve_url(url: str, base: str) -> str:
    """`../other` is meant from where the repository itself is from. Pure."""
    if not url.startswith(("./", "../")):
        return url
    base = base.rstrip("/")
    while url.startswith(("./", "../")):
        if url.startswith("../"):
            base = base[: max(base.rfind("/"), base.rfind(":") + 1)]
        url = url.partition("/")[2]
    gap = "" if base.endswith(":") else "/"
    return f"{base}{gap}{url}" if base else ""


# ── judging ──────────────────────────────────────────────────────────────────


def list_work(repo: Repository, checkout: Checkout) -> list[str]:
    """Names of the submodules' git directories that hold commits of their own."""
    modules = checkout.admin / "modules"
    return [
        name
        for name in list_modules(modules)
        if _has_own_commits(modules / name, repo.common_dir / "modules" / name)
    ]


def is_without_work(repo: Repository, checkout: Checkout, path: str) -> bool:
    """Whether what lies at that path is a submodule of ours with nothing that is there alone."""
    module = _find_module(checkout, path)
    if module is None:
        return False
    shared = repo.common_dir / "modules" / module.relative_to(checkout.admin / "modules")
    if _has_own_commits(module, shared):
        return False
    with look_at(module_git(module), Checkout(checkout.path / path, module)) as look:
        inner = [f"{path}/{name}" for name in look.links()]
        has_changes = bool(look.changed() or look.staged())
    checked_out = [name for name in inner if os.path.lexists(checkout.path / name / ".git")]
    return not has_changes and all(is_without_work(repo, checkout, name) for name in checked_out)


def _find_module(checkout: Checkout, path: str) -> Path | None:
    modules = checkout.admin / "modules"
    candidates = (modules / name for name in list_modules(modules))
    return next((each for each in candidates if points_to(checkout.path / path, each)), None)


def _has_own_commits(module: Path, shared: Path) -> bool:
    """Whether it has any that came from nowhere: neither from a remote, nor from the repository's
    own submodule."""
    words = ("rev-list", "--max-count=1", "HEAD", "--all", "--not", "--remotes")
    done = git(module_git(module), *words, accept=(0, 128))
    if done.code == 0 and not done.out:
        return False
    own = ("rev-parse", "HEAD", "--exclude=refs/remotes/*", "--all")  # stash and tags, too
    tips = git(module_git(module), *own, accept=(0, 128)).text.split()
    if shared.is_dir():
        known = ("rev-list", "--max-count=1", *tips, "--not", "HEAD", "--all")
        done = git(module_git(shared), *known, accept=(0, 128))
    return bool(done.out or done.code)
