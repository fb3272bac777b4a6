"""Ports of worktrees: each has a block of its own for as long as it is there.

The block is in the worktree's record. It counts as long as the worktree's directory is there, so
that a worktree that somebody deletes by hand gives its ports back, too. Called by `create` when a
worktree is made, or used again by somebody who needs ports.

Nobody listens on reserved ports yet, so the records decide; that a port can be bound shows that no
other program of this machine, or worktree of another home, uses it now.
"""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bullpen import clock
from bullpen.worktrees.errors import Code, WorktreeError
from bullpen.worktrees.git import Checkout, current_branch
from bullpen.worktrees.port_blocks import Block, choose_block, place_to_start, port_variables
from bullpen.worktrees.records import (
    Record,
    find_record,
    find_record_of,
    list_records,
    write_record,
)
from bullpen.worktrees.repo_lock import WAIT_SECONDS, Lock, take
from bullpen.worktrees.site import Site, list_checkouts

# The machine has no such addresses at all, so nobody can use the port there.
NO_ADDRESS = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT}


def find_port_variables(worktree: Path) -> dict[str, str]:
    """What programs in the worktree at that path are told of its ports; empty if it has none."""
    record = find_record_of(worktree)
    return port_variables(record.name, record.ports) if record and record.ports else {}


def write_with_ports(site: Site, record: Record, count: int, _lock: Lock) -> None:
    """Write the record of a worktree that was just put in place, with a block of so many ports.
    The block of its last life is taken again if it is free."""
    if count == 0:
        write_record(site, replace(record, first_port=0, port_count=0))
        return
    with _base_locked(site):
        _write(site, record, _choose(site, record, count, _taken_by_others(site, record.name)))


def keep_or_reserve(site: Site, checkout: Checkout, count: int, _lock: Lock) -> None:
    """Have so many ports on record for a worktree that is there. What it has stays, unless that
    is too little."""
    name = checkout.path.name
    with _base_locked(site):
        record = find_record(site, name)
        if record is None or not record.is_of(site.repo):
            record = _new_record(site, checkout)
        taken = _taken_by_others(site, name)
        block = record.ports
        # Others may have got them while its directory was moved away.
        if block is None or block.count < count or not taken.isdisjoint(block.ports):
            _write(site, record, _choose(site, record, count, taken))


def is_bindable(port: int) -> bool:
    """Whether nobody uses it, at any address of this machine."""

    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            # Without SO_REUSEADDR, which would also take ports that are bound and not listened at.
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((address, port))
        except OSError as error:
            if error.errno not in NO_ADDRESS:
                return False
    return True


@contextmanager
def _base_locked(site: Site) -> Iterator[None]:
    """One choice at a time in this base, which several repositories may share. The lock is on the
    directory itself: it is there, it is not empty, and no file is left over when it goes."""
    descriptor = os.open(site.base, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not take(descriptor, WAIT_SECONDS):
            raise WorktreeError(
                Code.LOCKED,
                f"another process has held the lock of {site.base} for {WAIT_SECONDS:g} s",
                hint=f"see who: fuser {site.base}",
            )
        yield
    finally:
        os.close(descriptor)


def _taken_by_others(site: Site, name: str) -> set[int]:
    """The ports of all worktrees that are there: in this base, and of this repository in bases of
    before or of other homes."""
    records = {site.base / record.name: record for record in list_records(site.base)}
    for checkout in list_checkouts(site.repo):
        record = find_record_of(checkout.path) if checkout.path.parent != site.base else None
        if record:
            records[checkout.path] = record
    records.pop(site.base / name, None)
    return {
        port
        for path, record in records.items()
        if record.ports and os.path.lexists(path)
        for port in record.ports.ports
    }


def _choose(site: Site, record: Record, count: int, taken: set[int]) -> Block:
    ports = site.port_range
    start = place_to_start(ports, count, str(site.base))
    if record.ports:
        start = record.ports.first
    block = choose_block(ports, count, start, lambda port: port not in taken and is_bindable(port))
    if block is None:
        raise WorktreeError(
            Code.NO_PORTS,
            f"no {count} ports in a row are free from {ports.start} to {ports.stop - 1} for"
            f" {record.name}: {len(taken)} belong to other worktrees",
            hint="remove worktrees that nobody needs (bullpen worktree list), or widen"
            " worktrees.port_range in config.yaml, or worktree.ports: 0 in the role",
        )
    return block


def _write(site: Site, record: Record, block: Block) -> None:
    write_record(site, replace(record, first_port=block.first, port_count=block.count))


def _new_record(site: Site, checkout: Checkout) -> Record:
    """For a worktree that a person made with git. Its branch is not ours to delete."""
    return Record(
        name=checkout.path.name,
        id=checkout.admin.name,
        repo=str(site.repo.common_dir),
        branch="",
        base=current_branch(site.repo) or "",
        base_commit="",
        created_at=clock.to_text(clock.now()),
    )
