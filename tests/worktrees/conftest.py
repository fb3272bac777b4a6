"""Real repositories for the library's tests."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bullpen import worktrees
from bullpen.worktrees import Site
from tests.worktrees.repos import make_repo


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repo(tmp_path / "repo")


@pytest.fixture
def site(repo: Path, tmp_path: Path) -> Site:
    return worktrees.open_site(repo, tmp_path / "base")


@pytest.fixture
def failing() -> Callable[..., worktrees.WorktreeError]:
    """Call and return the error it must raise."""

    def call(code: str, function: Callable[..., object], *args: object, **kwargs: object):
        with pytest.raises(worktrees.WorktreeError) as caught:
            function(*args, **kwargs)
        assert caught.value.code.value == code, caught.value
        return caught.value

    return call
