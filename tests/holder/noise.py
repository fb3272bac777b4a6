"""Output that can be told apart, for programs that print a file."""

import random
from pathlib import Path

from tests.holder.factory import Factory


def noise(size: int, seed: int = 1) -> bytes:
    """Numbered lines with random hexadecimal: nothing a terminal would act upon."""
    rng = random.Random(seed)
    lines = []
    while size > 0:
        lines.append(f"{len(lines):07d} {rng.randbytes(60).hex()}\n".encode())
        size -= len(lines[-1])
    return b"".join(lines)


def file_of(factory: Factory, data: bytes) -> Path:
    path = factory.root / f"data{factory.made}"
    path.write_bytes(data)
    return path
