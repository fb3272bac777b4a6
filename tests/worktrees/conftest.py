"""Real repositories for the library's tests."""

import os
import shutil
import stat
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


@pytest.fixture
def deadly_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """`died(step, moment, operation)`: the n-th git kills its caller before or after its work."""
    real = shutil.which("git")
    counter, target = tmp_path / "git-calls", tmp_path / "git-target"
    ended = tmp_path / "git-ended"
    wrapper = tmp_path / "bin" / "git"
    wrapper.parent.mkdir()
    wrapper.write_text(
        f"""#!/bin/sh
echo $$ >> {counter}
number=$(grep -nx $$ {counter} | cut -d: -f1)
read -r step moment < {target}
if [ "$number" = "$step" ] && [ "$moment" = before ]; then
    cat > {counter}.stdin; kill -9 $PPID; sleep 0.3; exec < {counter}.stdin
fi
{real} "$@"
code=$?
if [ "$number" = "$step" ] && [ "$moment" = after ]; then kill -9 $PPID; fi
if [ "$number" = "$step" ]; then touch {ended}; fi
exit $code
"""
    )
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    path = os.environ["PATH"]

    def died(step: int, moment: str, operation: Callable[[], object]) -> bool:
        counter.write_text("")
        ended.unlink(missing_ok=True)
        target.write_text(f"{step} {moment}\n")
        pid = os.fork()
        if pid == 0:
            try:
                os.environ["PATH"] = f"{wrapper.parent}:{path}"
                operation()
            except BaseException:  # noqa: BLE001
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
        return os.WIFSIGNALED(status)

    return died
