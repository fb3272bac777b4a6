"""Which fleet this machine is in: its key's file and the block of `config.yaml`, as one.

Called by `bullpen fleet join` and `leave`. A key is never written over the one that counts: the
block names the file, so one rename changes both, and whoever is killed leaves the old or the new.
"""

from pathlib import Path

from bullpen.errors import BullpenError
from bullpen.files import locked, write_atomically
from bullpen.fleet.config_block import set_fleet
from bullpen.fleet.credential import Credential, own_file, read_credential
from bullpen.home.paths import Home
from bullpen.home.settings import Fleet

FILES = (Fleet().creds, "credentials/fleet-2.json")  # one of them counts, the other may be next


def is_same_host(home: Home, fleet: Fleet, credential: Credential) -> bool:
    """Whether this machine is that host of that fleet already, with this key or another one."""
    try:
        own = read_credential(own_file(home.root, fleet))
    except BullpenError:
        return False
    is_named = fleet.url is not None and fleet.name == own.host
    return is_named and (own.host, own.authority) == (credential.host, credential.authority)


def replace(home: Home, wanted: Fleet, credential: Credential, before: Fleet) -> Fleet:
    """From now on this machine is one of that fleet; the settings that say so. The key of before is
    there until `drop_old_key`."""
    creds = before.creds if before.url is not None else ""
    if creds not in FILES or not _holds(home.root / creds, credential):
        creds = next(file for file in FILES if file != creds)
        with locked(home.credentials):
            write_atomically(home.root / creds, credential.to_text(), 0o600)
    after = wanted.model_copy(update={"creds": creds})
    set_fleet(home, after)
    return after


def drop_old_key(home: Home, fleet: Fleet) -> None:
    """Remove the key that counted before these settings; one that the person put elsewhere
    stays."""
    for file in FILES:
        if file != fleet.creds:
            (home.root / file).unlink(missing_ok=True)


def drop_key(home: Home, fleet: Fleet) -> None:
    """Remove the key of a fleet that this machine has left, and one that a `join` that was killed
    has left beside it."""
    own_file(home.root, fleet).unlink(missing_ok=True)
    if fleet.creds in FILES:
        drop_old_key(home, fleet)


def _holds(file: Path, credential: Credential) -> bool:
    try:
        return read_credential(file) == credential
    except BullpenError:
        return False
