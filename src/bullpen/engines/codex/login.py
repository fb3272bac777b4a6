"""How a Codex agent signs in, and where its model is asked. Writes nothing."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bullpen.engines import parse
from bullpen.engines.base import Start
from bullpen.errors import BullpenError, Kind

# In a terminal it takes a key from the environment only for a provider that names the variable.
KEY, PROVIDER, OPENAI_URL = "CODEX_API_KEY", "bullpen", "https://api.openai.com/v1"


def login(start: Start, origin: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """What has to be set for it to sign in without asking. A key in the environment goes before
    a login; a provider that somebody set up has its own way."""
    if config.get("model_provider", "openai") != "openai":
        return {}
    if start.env.get(KEY):
        provider = {
            "name": "OpenAI",
            "base_url": config.get("openai_base_url") or OPENAI_URL,
            "env_key": KEY,
            "wire_api": "responses",
        }
        return {"model_provider": PROVIDER, "model_providers": {PROVIDER: provider}}
    if not start.is_sandboxed and (origin / "auth.json").exists():
        return {}
    if start.is_sandboxed:
        raise BullpenError(
            "Codex in a sandbox cannot use your own login, and no key is set",
            hint="bullpen auth set openai-api-key < FILE",
            kind=Kind.UNAVAILABLE,
        )
    raise BullpenError(
        f"nobody is logged in to Codex ({origin / 'auth.json'})",
        hint="codex login · or: bullpen auth set openai-api-key < FILE",
        kind=Kind.UNAVAILABLE,
    )


def api(config: Mapping[str, Any]) -> str:
    """Where the model is asked. Pure."""
    name, providers = config.get("model_provider", "openai"), config.get("model_providers")
    of_name = providers.get(name) if isinstance(providers, Mapping) else None
    url = of_name.get("base_url") if isinstance(of_name, Mapping) else None
    return parse.text(url or config.get("openai_base_url")) or OPENAI_URL
