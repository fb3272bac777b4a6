"""An operation that is killed at its n-th effect."""

import os
import signal
import sys
from collections.abc import Callable

EVENTS = frozenset(
    {"open", "fcntl.flock", "subprocess.Popen", "shutil.rmtree", "shutil.copyfile"}
    | {f"os.{name}" for name in ("mkdir", "rename", "remove", "rmdir", "link", "symlink")}
    | {f"os.{name}" for name in ("listdir", "scandir", "chmod", "truncate", "putenv", "utime")}
)


def died_at_effect(step: int, operation: Callable[[], object]) -> bool:
    """Run it in a child that kills itself before its n-th effect; False if it got through."""
    pid = os.fork()
    if pid == 0:
        seen = 0

        def hook(event: str, _args: object) -> None:
            nonlocal seen
            if event in EVENTS:
                seen += 1
                if seen == step:
                    os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.addaudithook(hook)
            operation()
        except BaseException:  # noqa: BLE001 - the parent judges by what is on disk
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "the operation failed without being killed"
    return False
