"""Memory that is free, but still counted as this process's.

Called by `component/budget` after large bodies, by `component/http_server` after many connections
over TLS, by `web/view` at its start. Does nothing where the C library has no such call.
"""

import asyncio
import ctypes
import gc

# After so many bytes, and so long after the last of them, free memory goes back to the system.
MUCH_BYTES = 8 << 20
QUIET_SECONDS = 1.0
LATE_SECONDS = 60.0  # who closed a connection without a word is waited for, for half of that

LARGE_BYTES = 1 << 16

_M_MMAP_THRESHOLD = -3  # of malloc.h

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
_set_option = getattr(ctypes.CDLL(None), "mallopt", None)


def return_free_memory() -> None:
    """Give it back to the system. By itself the C library keeps free pages that lie between used
    ones: 50 MB after 300 bodies of 7 MB, 40 MB after 500 connections over TLS."""
    if _trim is not None:
        _trim(0)


def return_large_blocks_at_once() -> None:
    """From now on, when they are freed. By itself the C library puts blocks as large as one that
    was freed before among the small ones, where they leave holes: a view that had sent 200 agents
    25 times, over five connections, was 2 MB larger for good."""
    if _set_option is not None:
        _set_option(_M_MMAP_THRESHOLD, LARGE_BYTES)


class FreedMemory:
    """Counts what was done with, and gives it back. Lives on one event loop. `in_circles`: it is
    held by objects that hold each other, which Python finds late: 90 connections over TLS of 1,000
    that strangers had made were still there."""

    def __init__(self, *, in_circles: bool = False) -> None:
        self._bytes = 0  # since free memory was last given back
        self._tidying: asyncio.TimerHandle | None = None
        self._in_circles = in_circles

    def add(self, size: int) -> None:
        """So much is free now, or soon: what handled it may still hold it."""
        self._bytes += size
        if self._bytes < MUCH_BYTES:
            return
        if self._tidying is not None:
            self._tidying.cancel()
        self._tidying = asyncio.get_running_loop().call_later(QUIET_SECONDS, self._tidy, True)

    def _tidy(self, is_first: bool) -> None:
        self._bytes = 0
        self._tidying = None
        if self._in_circles:
            gc.collect()
            if is_first:
                loop = asyncio.get_running_loop()
                self._tidying = loop.call_later(LATE_SECONDS, self._tidy, False)
        return_free_memory()
