"""A home with real holders, and a person at a terminal: a bare pseudo-terminal, or tmux."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.holder.factory import Factory, made_factory
from tests.terminal.stage import Stage
from tests.terminal.tmux import Tmux

TEXT = "".join(
    f"line {number} " + ("wörld 漢字 🚀 · " if number % 3 else "plain ") * 4 + "\n"
    for number in range(200)
)


@pytest.fixture
def factory() -> Iterator[Factory]:
    with made_factory() as made:
        made.start()
        yield made


@pytest.fixture
def stage(factory: Factory) -> Iterator[Stage]:
    stage = Stage(factory)
    yield stage
    stage.close()


@pytest.fixture
def tmux(stage: Stage) -> Iterator[Tmux]:
    server = Tmux(stage.factory.root / "tmux", stage.env())
    yield server
    server.close()


@pytest.fixture
def place(stage: Stage) -> Path:
    """A directory with a text and a repository in it, the same for both."""
    place = stage.factory.root / "place"
    place.mkdir()
    (place / "text").write_text(TEXT)
    git = ["git", "-C", str(place), "-c", "init.defaultBranch=main"]
    subprocess.run([*git, "init", "-q"], check=True)
    for number in range(10):
        subprocess.run(
            [
                *git,
                "commit",
                "-q",
                "--allow-empty",
                "-m",
                f"commit {number}\n\nwith a body\nof lines",
            ],
            check=True,
            env={**os.environ, "GIT_COMMITTER_DATE": "@1 +0000", "GIT_AUTHOR_DATE": "@1 +0000"},
        )
    return place
