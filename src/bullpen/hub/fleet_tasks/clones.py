"""Repositories of other machines, in this home. Pure."""

import hashlib
import os
from pathlib import Path

from bullpen.model import names

DIGITS = 16


def name_repository(common_dir: Path) -> str:
    """What the machine that sends it calls a repository: no two of its own alike, whatever their
    directories are called."""
    directory = common_dir.parent if common_dir.name == ".git" else common_dir
    digest = hashlib.sha256(os.fsencode(common_dir)).hexdigest()[:DIGITS]
    return names.slug(f"{digest} {directory.name}")  # what is too long is cut off at its end


def name_clone(asker: str, repo_name: str) -> str:
    """One for each repository of a machine that asks. Neither name has a dot: no two machines have
    one clone."""
    return f"fleet-{asker}.{names.slug(f'repo {repo_name}')}.git"
