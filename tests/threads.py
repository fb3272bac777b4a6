"""Work in several threads, whose errors are the test's."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def together(*work: Callable[[], T]) -> list[T]:
    """All at the same time; their results."""
    gate = threading.Barrier(len(work))

    def begin(function: Callable[[], T]) -> T:
        gate.wait()
        return function()

    with ThreadPoolExecutor(len(work)) as pool:
        return list(pool.map(begin, work))


@contextlib.contextmanager
def meanwhile(work: Callable[[], object]) -> Iterator[threading.Thread]:
    """Do it in a thread; it must be through at the end, and without an error."""
    errors: list[BaseException] = []

    def body() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    yield thread
    thread.join(60)
    assert not thread.is_alive(), "still at it after 60 s"
    if errors:
        raise errors[0]
