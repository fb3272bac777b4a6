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
    return _died(lambda seen: seen == step, operation)


def died_once(condition: Callable[[], bool], operation: Callable[[], object]) -> bool:
    """Run it in a child that kills itself before its next effect once that is so; False if it got
    through. How many effects come before may differ from run to run."""
    return _died(lambda _: condition(), operation)


def _died(is_time: Callable[[int], bool], operation: Callable[[], object]) -> bool:
    pid = os.fork()
    if pid == 0:
        seen = 0
        is_asking = False  # what the question itself does is no effect

        def hook(event: str, _args: object) -> None:
            nonlocal seen, is_asking
            if event not in EVENTS or is_asking:
                return
            seen += 1
            is_asking = True
            if is_time(seen):
                os.kill(os.getpid(), signal.SIGKILL)
            is_asking = False

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
