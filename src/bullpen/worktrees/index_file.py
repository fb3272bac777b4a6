"""Reads the bytes of git's index file (gitformat-index, versions 2 and 3). Pure.

Called by `own_index`. Git skips reading a file whose times are those in the index. A file that
changes twice within one tick of the kernel's clock has the same times after both changes, and an
agent can see when its file is read. So what was recorded about files that changed lately is
forgotten, and git reads them again.
"""

import hashlib
import struct

HEADER = struct.Struct(">4sII")
CTIME = struct.Struct(">I")  # seconds: the first field of an entry
FORGOTTEN = bytes(24)  # in place of times, device and inode
STAT_BYTES = 40
EXTENDED = 0x4000
ALIGNMENT = 8


class UnknownIndex(ValueError):
    """Not an index that we can read."""


def offsets(content: bytes, hash_bytes: int) -> list[int]:
    """Where each entry begins."""
    try:
        signature, version, count = HEADER.unpack_from(content)
        if signature != b"DIRC" or version not in (2, 3):
            raise UnknownIndex
        starts, offset = [], HEADER.size
        for _ in range(count):
            starts.append(offset)
            flags_at = offset + STAT_BYTES + hash_bytes
            is_extended = content[flags_at] & (EXTENDED >> 8)
            end = content.index(b"\0", flags_at + (4 if is_extended else 2))
            offset += (end - offset) // ALIGNMENT * ALIGNMENT + ALIGNMENT
    except (struct.error, IndexError, ValueError) as error:
        raise UnknownIndex from error
    return starts


def forget_recent(content: bytes, since: int, hash_bytes: int) -> bytes:
    """The index without the times of files that changed (by their ctime) at `since` or later."""
    patched = bytearray(content)
    for offset in offsets(content, hash_bytes):
        if CTIME.unpack_from(content, offset)[0] >= since:
            patched[offset : offset + len(FORGOTTEN)] = FORGOTTEN
    end = len(patched) - hash_bytes
    return bytes(patched[:end]) + _digest(patched[:end], hash_bytes)


def is_whole(content: bytes, hash_bytes: int) -> bool:
    """Whether its last bytes are the sum of the others, as git writes them."""
    end = len(content) - hash_bytes
    return end > 0 and content[end:] == _digest(content[:end], hash_bytes)


def _digest(content: bytes | bytearray, hash_bytes: int) -> bytes:
    return (hashlib.sha256 if hash_bytes == 32 else hashlib.sha1)(content).digest()


def may_hold_links(content: bytes) -> bool:
    """Whether submodules may be among the entries: the bytes of their mode (0160000) occur."""
    return b"\0\0\xe0\0" in content
