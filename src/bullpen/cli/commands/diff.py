"""`bullpen diff`: what an agent has done, committed and not, apart."""

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from bullpen import worktrees
from bullpen.cli import output
from bullpen.cli.commands.worktree import complete_names
from bullpen.cli.connect import connect_for
from bullpen.cli.diff_text import coloured, stat_lines, summary
from bullpen.cli.own_pager import page
from bullpen.cli.worktree_sites import bring_over, open_site, told_of_agents, worktree_named
from bullpen.client.changes import get_patch, list_conflicts
from bullpen.worktrees import Commits, Compared, FileCount, Site

if TYPE_CHECKING:
    from bullpen.model.agent_shown import FileChange


@click.command()
@click.argument("name", shell_complete=complete_names)
@click.option("--stat", "is_stat", is_flag=True, help="Only the files, and how much of them.")
@click.option("--against", metavar="REF", default="", help="Since it left this branch or commit.")
@output.json_option
def command(name: str, is_stat: bool, against: str, as_json: bool) -> None:
    """Show what an agent has done since its branch began: committed and uncommitted work apart. A
    worktree of a task or a goal is named by its own name or its branch.

    The last line says with whom it would conflict; nothing is merged for that.
    """
    name = worktree_named(name)
    shown = _look(name, against) if against or "/" not in name else _look_elsewhere(name)
    compared, conflicts = shown.compared, shown.conflicts
    if as_json:
        output.write_json(_to_json(name, shown.base, compared, conflicts))
        return
    files = len(compared.uncommitted_files)
    last = summary(compared.commits.count, files, shown.lands_in, conflicts.items())
    lines = [*(_stat(compared) if is_stat else _text(compared)), last]
    if is_stat:
        output.write("\n".join(lines))
    else:
        page("\n".join(lines))


@dataclasses.dataclass(frozen=True)
class _Shown:
    """What is there to be shown; `base` is the commit that it began at."""

    compared: Compared
    base: str
    lands_in: str
    conflicts: dict[str, tuple[str, ...]]


def _look(name: str, against: str) -> _Shown:
    """By the files, without a hub."""
    with told_of_agents(name):
        site = open_site(None, name)
        bring_over(site)
        compared, base = worktrees.compare_worktree(site, name, against)
    lands_in = against or worktrees.base_of(site, name)
    return _Shown(compared, base, lands_in, _conflicts(site, name, against))


def _look_elsewhere(name: str) -> _Shown:
    """As the hub of its machine shows it."""
    hub, agent = connect_for(name)
    patch, pairs = hub.do(get_patch(agent)), hub.do(list_conflicts()).conflicts
    compared = Compared(
        Commits(patch.commit_count, patch.commits),
        patch.committed,
        patch.uncommitted,
        patch.staged,
        _counted(patch.committed_files),
        _counted(patch.uncommitted_files),
    )
    conflicts = {pair.other: pair.files for pair in pairs if pair.one == agent}
    conflicts |= {pair.one: pair.files for pair in pairs if pair.other == agent}
    return _Shown(compared, patch.base, patch.lands_in, conflicts)


def _counted(files: "Iterable[FileChange]") -> tuple[FileCount, ...]:
    return tuple(FileCount(file.name, file.added, file.deleted) for file in files)


def _conflicts(site: Site, name: str, against: str) -> dict[str, tuple[str, ...]]:
    """With its base and with every other worktree, in one call of git."""
    others = [each for each in worktrees.list_managed(site) if each.name != name]
    named = [
        against or worktrees.base_of(site, name),
        *(e.name for e in others if e.head.strip("0")),
    ]
    pairs = [(name, other) for other in dict.fromkeys(named) if other]
    results = worktrees.conflicts_of(site, pairs) if worktrees.head(site, name) else {}
    return {other: result.files for (_, other), result in results.items()}


def _text(compared: Compared) -> list[str]:
    lines = []
    for title, text in (
        ("committed", compared.committed),
        ("not committed", compared.uncommitted),
        ("staged, and not so in the files", compared.staged),
    ):
        if text:
            lines += [output.colour(title, "bold"), *coloured(text, _has_colours()), ""]
    return lines


def _stat(compared: Compared) -> list[str]:
    lines = stat_lines(compared.committed_files, _has_colours())
    if compared.uncommitted_files:
        lines += ["not committed:", *stat_lines(compared.uncommitted_files, _has_colours())]
    return lines


def _has_colours() -> bool:
    import sys

    return output.has_colours(sys.stdout)


def _to_json(
    name: str, base: str, compared: Compared, conflicts: dict[str, tuple[str, ...]]
) -> dict[str, Any]:
    parts = {"committed": compared.committed_files, "uncommitted": compared.uncommitted_files}
    return {
        "name": name,
        "base": base,
        "commits": list(compared.commits.subjects),
        "commit_count": compared.commits.count,
        "files": [
            {**dataclasses.asdict(file), "part": part}
            for part, each in parts.items()
            for file in each
        ],
        "conflicts": {other: list(files) for other, files in conflicts.items() if files},
    }
