"""Who a token is: the owner's, or one agent's. Compared in constant time, never logged."""

import hashlib
import hmac
import secrets
from collections.abc import Iterable

from bullpen import credentials
from bullpen.files import create_once
from bullpen.model.agent import Agent
from bullpen.paths import Home


def new_token() -> str:
    """256 random bits, recognisable as ours."""
    return f"bullpen_{secrets.token_urlsafe(32)}"


def hash_of(token: str) -> str:
    """What is stored in its place."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def owner_token(home: Home) -> str:
    """The owner's, made on first use. One that others can read is refused."""
    found = credentials.load(home, credentials.API_TOKEN)
    if found is None:
        create_once(home.credentials / credentials.API_TOKEN, f"{new_token()}\n".encode())
        found = credentials.load(home, credentials.API_TOKEN)
    assert found is not None
    return found


def find_agent(token: str, agents: Iterable[Agent]) -> Agent | None:
    """The agent whose token it is."""
    given = hash_of(token)
    found = None
    for agent in agents:  # all of them, so that the time tells nothing
        if agent.token_hash and hmac.compare_digest(given, agent.token_hash):
            found = agent
    return found


def is_owner(token: str, owner: str) -> bool:
    """Whether it is the owner's."""
    return hmac.compare_digest(hash_of(token), hash_of(owner))
