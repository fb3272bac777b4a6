"""`bullpen conflicts`: which branches would conflict with each other, and with their base."""

from pathlib import Path

import click

from bullpen import worktrees
from bullpen.cli import output
from bullpen.cli.commands.worktree import repo_option
from bullpen.cli.worktree_sites import bring_over, open_site
from bullpen.cli.worktree_text import write_conflicts


@click.command()
@repo_option
@output.json_option
def command(repo: Path | None, as_json: bool) -> None:
    """Say which branches of agents would conflict with each other and with their base.

    File by file; committed work only. Nothing is checked out or merged.
    """
    site = open_site(repo)
    bring_over(site)
    write_conflicts(worktrees.conflicts_of(site, worktrees.pairs_of(site)), as_json)
