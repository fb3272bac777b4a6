"""Growth of worktrees: which of them would conflict, by the pair."""

import itertools
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench.sizes import growth_row
from bench.table import Row, interleaved, timed
from bench.trees import WHO, make_repo
from bullpen import worktrees
from bullpen.worktrees import Site, Spec

FILES = 50


def rows(short: bool) -> Iterator[Row]:
    """Each worktree has a commit of its own; every second one touches the same line."""
    few, many, rounds = (2, 4, 1) if short else (10, 150, 3)
    with tempfile.TemporaryDirectory() as scratch:
        sites = [_make_site(Path(scratch, f"{count}"), count) for count in (few, many)]
        smaller, larger = interleaved(rounds, *(partial(_seconds_of_pair, site) for site in sites))
    sizes = (f"{few}", f"{many} worktrees")
    yield growth_row("conflicts, each pair", sizes, smaller, larger)


def _seconds_of_pair(site: Site) -> float:
    names = [entry.name for entry in worktrees.list_managed(site)]
    pairs = list(itertools.combinations(names, 2))
    return timed(lambda: worktrees.conflicts_of(site, pairs)) / len(pairs)


def _make_site(place: Path, count: int) -> Site:
    place.mkdir()
    repo = make_repo(place / "repo", FILES)
    site = worktrees.open_site(repo, place / "base")
    for number in range(count):
        path = worktrees.create(site, Spec(f"tree-{number}"))
        changed = path / "d0" / ("f0.txt" if number % 2 else f"f{number}.txt")
        changed.write_text(f"changed by {number}\n")
        subprocess.run(["git", "-C", path, *WHO, "commit", "-qam", "Change"], check=True)
    return site
