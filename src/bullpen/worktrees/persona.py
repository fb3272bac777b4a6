"""Copies a role's persona again into worktrees that exist already."""

from pathlib import Path

from bullpen.worktrees import prepare
from bullpen.worktrees.errors import reported
from bullpen.worktrees.listing import list_managed
from bullpen.worktrees.records import find_record
from bullpen.worktrees.repo_lock import locked
from bullpen.worktrees.site import Site, find_checkout, is_intact


def update_persona(site: Site, role: str, persona: Path) -> list[str]:
    """Copy the persona again into every worktree of the role; returns their names."""
    prepare.check_persona(persona)
    with reported(f"cannot update the persona of {role}"), locked(site.repo) as lock:
        prepare.exclude_persona(site.repo, lock)
        names = []
        for entry in list_managed(site):
            record = find_record(site, entry.name)
            checkout = find_checkout(site, entry.path)
            if record and record.role == role and checkout and is_intact(checkout):
                prepare.place_persona(site.repo, checkout, persona)
                names.append(entry.name)
        return names
