"""Opens a pull request for a branch of this machine: pushes it, then asks the forge.

Called by `bullpen finish --pr`. The token is the home's (`auth set github-token`), which no agent
has; git gets it from a credential helper. Each step finds out whether it is done: run twice, or
again after a crash, there is one push and one request.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, cast

from bullpen.directors.config import director_type, list_directors, load_director
from bullpen.directors.forge.checkouts import Checkouts
from bullpen.directors.forge.config import ForgeConfig
from bullpen.directors.forge.director import ForgeDirector
from bullpen.directors.forge.nouns import Forge, Pull, Repository
from bullpen.directors.forge.remote import KnownServer, RemoteForge, find_forge
from bullpen.directors.forge.texts import PLACE_CHARACTERS, Publisher
from bullpen.errors import BullpenError, Kind
from bullpen.home import credentials
from bullpen.home.paths import Home
from bullpen.worktrees.git import Repository as GitRepository
from bullpen.worktrees.git import git

MOST_COMMITS = 50
MOST_TITLE = 200


@dataclass(frozen=True)
class OpenedPull:
    """The request of that branch. `done`: what was to be done about it."""

    number: int
    url: str
    branch: str
    done: Literal["opened", "there already", "merged already"]

    def words(self) -> str:
        """For people."""
        return f"pull request {self.done}: {self.url} · branch {self.branch}"


def open_pull(home: Home, repo: GitRepository, branch: str, into: str | None) -> OpenedPull:
    """Push that branch, and open a request for it unless there is one."""
    forge = find_forge(_origin_url(repo), _known_servers(home))
    kind = cast("type[ForgeDirector]", director_type(forge.type))
    token = credentials.load(home, kind.credential)
    if token is None:
        raise BullpenError(
            f"there is no {kind.credential}: {forge.repo} is on {forge.server or forge.type}",
            hint=f"bullpen auth set {kind.credential} < FILE",
            kind=Kind.DENIED,
        )
    checkouts = Checkouts(
        repo.common_dir, home.credentials / kind.credential, kind.git_user, kind.credential
    )
    secrets = credentials.load_secrets(home)
    publisher = Publisher(lambda: secrets)
    adapter = kind.adapter(forge.repo, lambda: token, forge.server)
    return asyncio.run(_open(adapter, forge, checkouts, repo, publisher, branch, into))


async def _open(
    adapter: Forge,
    forge: RemoteForge,
    checkouts: Checkouts,
    repo: GitRepository,
    publisher: Publisher,
    branch: str,
    into: str | None,
) -> OpenedPull:
    repository = await adapter.repository()
    if into:
        repository = repository.model_copy(update={"default_branch": into})
    base = repository.default_branch
    if branch == base:
        raise BullpenError(f"{branch} is the branch that it would go into", kind=Kind.CONFLICT)
    if not checkouts.tip(base, repository):
        raise BullpenError(
            f"{forge.repo} has no branch {base}", hint="--into BRANCH", kind=Kind.NOT_FOUND
        )
    commit = git(repo, "rev-parse", "--verify", f"refs/heads/{branch}").text.strip()
    there = await adapter.find_pull(branch)
    tip = checkouts.tip(branch, repository)
    if there is not None and not there.is_open and tip == commit:
        return _over(there, branch)
    if tip != commit or there is None:
        _check_sent(checkouts, publisher, commit, repository)
        _check_follows(repo, branch, commit, tip)
        checkouts.push(branch, commit, tip, repository)
    if there is not None and there.is_open:
        return OpenedPull(there.number, there.url, branch, "there already")
    title, body = _texts(repo, branch, commit, checkouts.tip(base, repository))
    pull = await adapter.open_pull(
        branch, base, publisher.clean(title), publisher.clean(body), is_draft=False
    )
    return OpenedPull(pull.number, pull.url, branch, "opened")


def _over(pull: Pull, branch: str) -> OpenedPull:
    """Nothing came since it was merged; one that somebody refused is not asked for again."""
    if pull.is_merged:
        return OpenedPull(pull.number, pull.url, branch, "merged already")
    raise BullpenError(
        f"the pull request of {branch} was closed: {pull.url}",
        hint="open it again there, or commit what was asked for",
        kind=Kind.CONFLICT,
    )


def _check_sent(
    checkouts: Checkouts, publisher: Publisher, commit: str, repository: Repository
) -> None:
    """Before anything leaves this machine."""
    sent = checkouts.sent(commit, repository)
    if not sent:
        raise BullpenError(
            f"there is nothing to ask for: {repository.default_branch} has all of its commits",
            hint="bullpen finish NAME --keep",
            kind=Kind.CONFLICT,
        )
    if secret := publisher.find_secret(sent):
        where = publisher.plain(checkouts.name_place(sent, secret.offset, commit), PLACE_CHARACTERS)
        raise BullpenError(
            f"a credential of this home ({secret.name}) is in its commits, in {where}: nothing was"
            " pushed",
            hint="take it out of every commit, and make a new one at its provider",
            kind=Kind.DENIED,
        )


def _check_follows(repo: GitRepository, branch: str, commit: str, tip: str) -> None:
    """What the forge has as that branch must be in ours: nothing of anybody is pushed away."""
    if not tip:
        return
    known = git(repo, "merge-base", "--is-ancestor", tip, commit, accept=(0, 1, 128))
    if known.code:
        raise BullpenError(
            f"the forge's {branch} has commits that this one lacks ({tip[:7]})",
            hint=f"git fetch origin {branch}, and merge it into {branch}",
            kind=Kind.CONFLICT,
        )


def _texts(repo: GitRepository, branch: str, commit: str, base: str) -> tuple[str, str]:
    """The subject of its only commit, or the branch's name; and a line for each commit."""
    log = git(repo, "log", "--reverse", "--format=%s", commit, f"^{base}").text.splitlines()
    title = log[0] if len(log) == 1 else branch
    more = [f"… and {len(log) - MOST_COMMITS} more"] if len(log) > MOST_COMMITS else []
    return title[:MOST_TITLE] or branch, "\n".join([*(f"- {s}" for s in log[:MOST_COMMITS]), *more])


def _origin_url(repo: GitRepository) -> str:
    url = git(repo, "config", "--get", "remote.origin.url", accept=(0, 1)).text.strip()
    if not url:
        raise BullpenError(
            f"{repo.common_dir} has no remote called origin",
            hint="git remote add origin https://github.com/OWNER/NAME.git",
            kind=Kind.CONFLICT,
        )
    return url


def _known_servers(home: Home) -> Iterator[KnownServer]:
    """Those that directors' files name; a file that is wrong names none."""
    for name in list_directors(home):
        try:
            _, config = load_director(home, name)
        except BullpenError:
            continue
        if isinstance(config, ForgeConfig) and config.server:
            yield KnownServer(config.type, config.server)
