"""What a name may be, and what is made of a text or a branch."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import Home
from bullpen.model.names import (
    RESERVED,
    check_name,
    check_worktree_name,
    slug,
    subtree_name,
    subtree_name_in,
)

HOSTILE = ["", ".", "..", "../x", "a/b", "/etc", "-rf", ".git", "a\n", "a\0", "é", "a b", "a.", "~"]


@pytest.mark.parametrize("name", ["a", "0", "amy", "amy-2", "a.b_c-d", "a" * 63])
def test_h9_good_names_are_kept(name: str) -> None:
    assert check_name("agent", name) == name


@pytest.mark.parametrize("name", [*HOSTILE, "Amy", "a~b", "a" * 64])
def test_h9_bad_names_are_refused_with_the_rule(name: str) -> None:
    with pytest.raises(BullpenError) as caught:
        check_name("agent", name)
    assert repr(name) in caught.value.message
    assert "a-z" in caught.value.hint
    assert caught.value.kind is Kind.INVALID


@pytest.mark.parametrize("name", ["root", "all", "hub", "parent", "self"])
def test_h9_reserved_names_are_refused(name: str) -> None:
    assert name in RESERVED
    for check in (lambda: check_name("pod", name), lambda: check_worktree_name(name)):
        with pytest.raises(BullpenError, match="reserved"):
            check()


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("Fix the login bug!", "fix-the-login-bug"),
        ("  a  --  b  ", "a-b"),
        ("Ünïcode", "n-code"),
        ("x" * 50, "x" * 40),
        ("x" * 39 + " yes", "x" * 39),
    ],
)
def test_h9_slug(text: str, made: str) -> None:
    assert slug(text) == made


@pytest.mark.parametrize("text", ["", "   ", "!!!", "日本"])
def test_h9_empty_slug_is_refused(text: str) -> None:
    with pytest.raises(BullpenError, match="no letter or digit"):
        slug(text)


@given(st.text(min_size=1))
def test_h9_every_slug_is_a_name(text: str) -> None:
    try:
        made = slug(text)
    except BullpenError:
        return
    assert made in RESERVED or check_name("agent", made) == made


def test_h9_subtree_is_its_birth_branch_with_tildes() -> None:
    assert subtree_name("amy/Fix-1/deep") == "amy~Fix-1~deep"
    assert subtree_name("b" * 60) == "b" * 60
    with pytest.raises(BullpenError, match="longer than 60"):
        subtree_name("b" * 61)


def test_h9_a_branch_that_two_repositories_have_has_two_names() -> None:
    for branch in ("claude/issue-3", "b" * 60):
        names = {subtree_name_in(repo, branch) for repo in ("/a/.git", "/b/.git")}
        assert len({*names, subtree_name(branch)}) == 3
        assert {check_worktree_name(name) for name in names} == names


@pytest.mark.parametrize("name", HOSTILE)
def test_h9_names_are_checked_again_where_a_path_is_made(name: str) -> None:
    home = Home(Path("/h"))
    with pytest.raises(BullpenError):
        home.session(name)
    with pytest.raises(BullpenError):
        home.socket(name)


def test_h9_subtrees_have_sessions_and_sockets() -> None:
    home = Home(Path("/h"))
    assert home.session("amy~fix") == Path("/h/sessions/amy~fix")
    assert home.socket("amy~fix") == Path("/h/sockets/agent.amy~fix.sock")
    assert home.socket("hub") == Path("/h/sockets/hub.sock")


def test_a_repository_whose_path_is_no_text_has_names_too() -> None:
    assert subtree_name_in("/caf\udce9/.git", "amy") != subtree_name_in("/caf/.git", "amy")
