"""N3-N5 against a model: the target after any sequence of commits, edits and landings."""

import itertools
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bullpen import worktrees
from bullpen.worktrees import Site, Spec
from bullpen.worktrees.landing.checked_out import InTheWayError
from bullpen.worktrees.landing.landed import is_ancestor
from tests.worktrees.landing.model import FILES, NAMES, Model
from tests.worktrees.landing.works import built, head_of, land, status
from tests.worktrees.repos import assert_healthy, commit, git, make_repo

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("work"), st.sampled_from(NAMES), st.sampled_from(FILES)),
        st.tuples(st.just("commit"), st.sampled_from(FILES), st.none()),
        st.tuples(st.just("edit"), st.sampled_from(FILES), st.none()),
        st.tuples(st.just("tidy"), st.none(), st.none()),
        st.tuples(
            st.just("land"), st.sampled_from(NAMES), st.sampled_from(("merge", "squash", "rebase"))
        ),
    ),
    min_size=4,
    max_size=14,
)


def play(operations: list[tuple[str, str, str]], place: Path) -> None:
    repo = make_repo(place / "repo", files=2)
    site = worktrees.open_site(repo, place / "base")
    model = Model({file: (repo / file).read_text() for file in FILES if (repo / file).exists()})
    trees = {name: worktrees.create(site, Spec(name)) for name in NAMES}
    texts = (f"text {number}\n" for number in itertools.count())
    for what, who, more in operations:
        match what:
            case "work":
                branch, text = model.branches[who], next(texts)
                commit(trees[who], more, text)
                branch.commits.append((more, branch.files.get(more), text))
                branch.files[more] = text
            case "commit" if who not in model.edits and not model.edits:
                model.target[who] = next(texts)
                commit(repo, who, model.target[who])
            case "edit":
                model.edits[who] = next(texts)
                (repo / who).write_text(model.edits[who])
            case "tidy":
                git(repo, "reset", "-q", "--hard")
                git(repo, "clean", "-qfd")
                model.edits.clear()
            case "land":
                land_and_compare(site, model, who, more)
        compare(site, repo, model)
    assert_healthy(site)


def land_and_compare(site: Site, model: Model, name: str, strategy: str) -> None:
    expected = model.merged(name, strategy)
    old = head_of(site, "main")
    if expected is None:
        assert built(site, name, strategy).conflicts
        return
    changed = {file for file in FILES if expected.get(file) != model.target.get(file)}
    if changed & set(model.edits):
        with pytest.raises(InTheWayError) as caught:
            land(site, name, strategy)
        assert set(caught.value.files) == changed & set(model.edits)
        return
    result, _ = land(site, name, strategy)
    assert result.is_there == (not changed and head_of(site, "main") == old)
    model.landed(name, expected)
    now = head_of(site, "main")
    assert is_ancestor(site.repo, old, now), "nothing of the target is lost"


def compare(site: Site, repo: Path, model: Model) -> None:
    committed = {
        file: git(repo, "show", f"main:{file}") + "\n"
        for file in git(repo, "ls-tree", "--name-only", "main").splitlines()
    }
    assert committed == model.target
    on_disk = {file: (repo / file).read_text() for file in FILES if (repo / file).exists()}
    assert on_disk == {**model.target, **model.edits}
    assert {line[3:] for line in status(repo).splitlines()} == set(model.edits)
    assert git(repo, "diff", "--cached", "--name-only") == ""
    assert not (repo / ".git" / "index.lock").exists()


def in_a_place_of_its_own(operations: list[tuple[str, str, str]]) -> None:
    place = Path(tempfile.mkdtemp(prefix="bp-model-", dir="/tmp")).resolve()
    try:
        play(operations, place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


@pytest.mark.slow
@settings(max_examples=4)
@given(OPERATIONS)
def test_n3_the_target_is_what_the_model_says(operations: list[tuple[str, str, str]]) -> None:
    in_a_place_of_its_own(operations)


@pytest.mark.storm
@settings(max_examples=150)
@given(OPERATIONS)
def test_n3_the_target_is_what_the_model_says_in_many_sequences(
    operations: list[tuple[str, str, str]],
) -> None:
    in_a_place_of_its_own(operations)
