"""The fleet, for a machine that is one of many: its key, and whether the server takes it."""

import asyncio

from bullpen.cli.doctor.check import Check
from bullpen.errors import BullpenError
from bullpen.home.paths import Home
from bullpen.home.settings import Fleet, load_settings


def check_fleet(home: Home) -> Check | None:
    """None for a machine that is alone. What is wrong in config.yaml is said of the ports."""
    try:
        fleet = load_settings(home.config_file).fleet
    except BullpenError:
        return None
    if fleet.url is None:
        return None
    try:
        _try(home, fleet, fleet.url)
    except BullpenError as error:
        return Check("fail", "fleet", error.message, error.hint)
    return Check("ok", "fleet", f"{fleet.name} at {fleet.url}, connected and left")


def _try(home: Home, fleet: Fleet, url: str) -> None:
    from bullpen.fleet.credential import read_own
    from bullpen.fleet.link import try_key

    asyncio.run(try_key(url, read_own(home.root, fleet)))
