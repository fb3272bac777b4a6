"""Asks forges what a token may do, before it is kept: as the directors of this home would use it.

Called by `bullpen auth set`. Reads only. The token is in no message.
"""

import asyncio
from dataclasses import dataclass

from bullpen.directors import config as configs
from bullpen.directors.failures import ActionError
from bullpen.directors.forge.config import ForgeConfig
from bullpen.directors.forge.director import ForgeDirector
from bullpen.errors import BullpenError, Kind
from bullpen.home import forge_user
from bullpen.home.paths import Home

SECONDS = 60.0
TYPES = {"github-token": "github", "gitlab-token": "gitlab"}


@dataclass(frozen=True)
class Checked:
    """What one server says of a token, for one repository if a director works on it. `unchecked`:
    why it could not be asked; `login`, whose it is, `scopes`, what it says that it may, are not
    always told."""

    server: str
    repo: str | None = None
    login: str | None = None
    scopes: tuple[str, ...] | None = None
    lacks: tuple[str, ...] = ()
    is_refused: bool = False
    unchecked: str | None = None

    def text(self) -> str:
        """What it may, in a line; what it lacks is told apart."""
        scopes = None if self.scopes is None else f"scopes: {', '.join(self.scopes) or 'none'}"
        where = f"{self.server} ({self.repo})" if self.repo else self.server
        whose = f"it is {self.login}'s" if self.login else "it counts"
        return " · ".join(filter(None, (f"at {where} {whose}", scopes)))


def check_token(home: Home, name: str, token: str) -> list[Checked]:
    """What each server says. Raises if all that answered refuse it."""
    results = asyncio.run(_ask_all(_targets(home, TYPES[name]), TYPES[name], token))
    answered = [one for one in results if one.unchecked is None]
    if answered and all(one.is_refused for one in answered):
        servers = " and ".join(dict.fromkeys(one.server for one in answered))
        variable = forge_user.FORGES[TYPES[name]].variable
        raise BullpenError(
            f"{servers} does not know that {name} (401), and it is not kept",
            hint=f"has it expired? · another server: {variable}=https://…, or `server`"
            " in the director's file",
            kind=Kind.DENIED,
        )
    return results


def _targets(home: Home, type: str) -> list[tuple[str | None, str]]:
    """Server and repository of every director of that type whose file is right; without any, the
    server that the environment names."""
    targets = []
    for name in configs.list_directors(home):
        try:
            _, config = configs.load_director(home, name)
        except BullpenError:
            continue
        if isinstance(config, ForgeConfig) and config.type == type:
            targets.append((config.server, config.repo))
    return [*dict.fromkeys(targets)] or [(forge_user.base_of(forge_user.FORGES[type]), "")]


async def _ask_all(targets: list[tuple[str | None, str]], type: str, token: str) -> list[Checked]:
    return list(await asyncio.gather(*(_ask(type, *target, token) for target in targets)))


async def _ask(type: str, server: str | None, repo: str, token: str) -> Checked:
    director = configs.director_type(type)
    assert issubclass(director, ForgeDirector)
    shown = server or director.server
    try:
        async with asyncio.timeout(SECONDS):
            rights = await director.adapter(repo, lambda: token, server).rights()
    except TimeoutError:
        return Checked(shown, repo or None, unchecked=f"{shown} takes too long to answer")
    except ActionError as error:
        return Checked(shown, repo or None, unchecked=error.message)
    except (AttributeError, KeyError, TypeError, ValueError):
        return Checked(shown, repo or None, unchecked=f"what answers at {shown} is no {type}")
    if rights is None:
        return Checked(
            shown, repo or None, is_refused=True, lacks=("it does not count there (401)",)
        )
    return Checked(shown, repo or None, rights.login or None, rights.scopes, rights.lacks)
