"""Tokens: the owner's and those of agents. Compared in constant time, never logged.

Called by `plan` (makes an agent's) and by the guard of the API (finds out whose one is).
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterable

from bullpen.files import create_once
from bullpen.home import credentials
from bullpen.home.paths import Home
from bullpen.model.agent import Agent


def new_token() -> str:
    """256 random bits, recognisable as ours."""
    return f"bullpen_{secrets.token_urlsafe(32)}"


def hash_of(token: str) -> str:
    """What is stored in its place."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def owner_token(home: Home) -> str:
    """The owner's, made on first use. One that others can read is refused."""
    token = credentials.load(home, credentials.API_TOKEN)
    if token is None:
        create_once(home.credentials / credentials.API_TOKEN, f"{new_token()}\n".encode())
        token = credentials.load(home, credentials.API_TOKEN)
    assert token is not None
    return token


def find_agent(token: str, agents: Iterable[Agent]) -> Agent | None:
    """The agent whose token it is."""
    given = hash_of(token)
    owner = None
    for agent in agents:  # all of them, so that the time tells nothing
        if agent.token_hash and hmac.compare_digest(given, agent.token_hash):
            owner = agent
    return owner


def is_owner(token: str, owner: str) -> bool:
    """Whether it is the owner's."""
    return hmac.compare_digest(hash_of(token), hash_of(owner))
