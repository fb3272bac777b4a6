"""A director of a forge that is killed between the requests of one action: D2, D4. One claim, one
branch, one proposal, one task a round, one comment each, as if nobody had killed it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.directors.forge.github import GitHubForge
from bullpen.directors.forge.gitlab import GitLabForge
from tests.directors.replay import killed, killed_until_done, undisturbed
from tests.forge.cutting import at_moment, at_new_moment
from tests.forge.lives import Life, Reacting, check, check_reacting
from tests.forge.server import served_github, served_gitlab

pytestmark = pytest.mark.slow
GITLAB = (served_gitlab, GitLabForge)
FORGES = [
    pytest.param((served_github, GitHubForge), id="github"),
    pytest.param(GITLAB, id="gitlab"),
]


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as made:
        yield made


def died_at(life: Life, directory: Path, *, of_changes: bool) -> list[str]:
    """The moments at which processes died, one after the other in one life; what came of it is
    what comes of a life without any."""
    wanted: Any = undisturbed(life, directory / "whole")
    if life.changes:
        check_reacting(wanted) if isinstance(life, Reacting) else check(wanted)
    seen = directory / "seen"
    picture, deaths = killed_until_done(
        life, directory / "killed", lambda: at_new_moment(seen, of_changes=of_changes)
    )
    assert picture == wanted
    moments = seen.read_text().splitlines()
    assert len(moments) == deaths
    # Who died before a request died after it, too.
    sent = [each.removeprefix("before") for each in moments if each.startswith("before")]
    assert [each for each in sent if f"after{each}" not in moments] == []
    return moments


@pytest.mark.storm
@pytest.mark.parametrize("forge", FORGES)
def test_d2_killed_before_and_after_each_change_of_the_forge_a_director_makes_each_once(
    stack: contextlib.ExitStack, tmp_path: Path, forge: Any
) -> None:
    moments = died_at(Life(stack, *forge), tmp_path, of_changes=True)
    # Claim (3), two pushes, the proposal, an answer, the label and the comment of the end.
    assert len(moments) >= 2 * 9, moments


@pytest.mark.storm
def test_d4_killed_before_and_after_each_change_of_gitlab_a_director_proposes_once(
    stack: contextlib.ExitStack, tmp_path: Path
) -> None:
    """Up to the merge request; the rest is in the storm."""
    life = Life(stack, *GITLAB)
    life.changes = ()
    moments = died_at(life, tmp_path, of_changes=True)
    assert len(moments) >= 2 * 5, moments


@pytest.mark.storm
@pytest.mark.parametrize("kind", [Life, Reacting])
@pytest.mark.parametrize("forge", FORGES)
def test_d2_killed_at_every_request_one_after_the_other_a_director_does_nothing_twice(
    stack: contextlib.ExitStack, tmp_path: Path, forge: Any, kind: type[Life]
) -> None:
    assert len(died_at(kind(stack, *forge), tmp_path, of_changes=False)) > 50


@pytest.mark.storm
def test_d2_killed_once_at_any_request_of_an_action_a_director_does_nothing_twice(
    stack: contextlib.ExitStack, tmp_path: Path
) -> None:
    """A life for each, of GitHub; the test before this one has GitLab, too."""
    life = Life(stack)
    wanted = undisturbed(life, tmp_path / "whole")
    check(wanted)
    hit = 0
    for name, picture in killed(life, tmp_path / "killed", at=at_moment):
        assert picture == wanted, name
        hit += 1
    assert hit > 50
