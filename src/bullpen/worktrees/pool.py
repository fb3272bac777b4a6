"""The pool: clean checkouts that are ready to be handed out.

An entry is a detached worktree under `<base>/.pool/`, locked so that git leaves it alone. `pick`
chooses entries; `create` hands them out, with an intent like any creation. `fill` makes new ones,
in the background.
"""

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bullpen import proc
from bullpen.hot.own_python import TRUSTED_DIRECTORY, module_command
from bullpen.worktrees import admin
from bullpen.worktrees.git import Checkout, Repository, git
from bullpen.worktrees.site import Site, is_intact, recorded_path


@dataclass(frozen=True)
class Ready:
    """A pooled checkout: where it lies and which commit it holds."""

    id: str
    path: Path
    commit: str


def list_ready(site: Site) -> list[Ready]:
    """The entries that can be handed out."""
    try:
        paths = sorted(site.pool_dir.iterdir())
    except FileNotFoundError:
        return []
    entries = []
    for path in paths:
        directory = site.repo.admin_dir / path.name
        checkout = Checkout(path, directory)
        # An entry whose making or handing out was cut short is not ready.
        if (
            is_intact(checkout)
            and recorded_path(directory) == path
            and admin.lock_reason(directory) == admin.POOLED
        ):
            commit = (directory / "HEAD").read_text().strip()
            if re.fullmatch(r"[0-9a-f]{40,64}", commit):
                entries.append(Ready(path.name, path, commit))
    return entries


def pick(site: Site, wanted: Sequence[object]) -> list[Ready]:
    """As many entries as are wanted and there."""
    return list_ready(site)[: len(wanted)] if wanted else []


def refresh_index(repo: Repository, checkout: Checkout) -> None:
    """Let git look at the files once more, and note that they are as it wrote them.

    An index as young as its files makes every later `status` read them again. (Git's
    untracked cache would help too, but it is void, with a warning, after the move.)
    """
    env = {"GIT_OPTIONAL_LOCKS": "1"}
    git(repo, "status", "--porcelain", at=checkout, env=env, timeout=600)


def refill_in_background(site: Site, base: str = "") -> None:
    """Start filling the pool in a process that outlives this one."""
    if len(list_ready(site)) >= site.pool:
        return
    subprocess.Popen(
        [
            *module_command("bullpen.worktrees.fill"),
            *(str(site.repo.root or site.repo.common_dir), str(site.base), str(site.pool), base),
        ],
        cwd=TRUSTED_DIRECTORY,
        env=proc.with_absolute_path(os.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
