"""How a Gemini CLI agent signs in, and where its model is asked. Writes nothing."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bullpen.engines.base import Start
from bullpen.engines.gemini.home import HOME, read_settings
from bullpen.errors import BullpenError, Kind

KEY = "GEMINI_API_KEY"
API = "https://generativelanguage.googleapis.com"


def login(start: Start, origin: Path) -> str:
    """How it signs in; unset it would ask. A key in the environment goes before all else."""
    if start.env.get(KEY):
        return "gemini-api-key"
    if start.is_sandboxed:
        return _login_of_environment(start.env)
    settings: Any = read_settings(origin)
    for key in ("security", "auth", "selectedType"):
        settings = settings.get(key) if isinstance(settings, dict) else None
    if isinstance(settings, str) and settings:
        return settings
    if start.env.get("GOOGLE_GENAI_USE_VERTEXAI") == "true":
        return "vertex-ai"
    if (origin / HOME.inside / "oauth_creds.json").exists():
        return "oauth-personal"
    raise BullpenError(
        "nobody is logged in to Gemini CLI",
        hint="gemini (once, to log in) · or: bullpen auth set gemini-api-key < FILE",
        kind=Kind.UNAVAILABLE,
    )


def _login_of_environment(env: Mapping[str, str]) -> str:
    """In a sandbox no file of a login can be read."""
    if env.get("GOOGLE_GENAI_USE_VERTEXAI") == "true" and env.get("GOOGLE_API_KEY"):
        return "vertex-ai"
    raise BullpenError(
        "Gemini CLI in a sandbox cannot use your own login, and no key is set",
        hint="bullpen auth set gemini-api-key < FILE",
        kind=Kind.UNAVAILABLE,
    )


def api(env: Mapping[str, str]) -> str:
    """Where the model is asked. Pure. A key goes before all else, as in `login`."""
    if env.get(KEY) or env.get("GOOGLE_GENAI_USE_VERTEXAI") != "true":
        return env.get("GOOGLE_GEMINI_BASE_URL") or API
    location = env.get("GOOGLE_CLOUD_LOCATION") or "global"
    base_url = env.get("GOOGLE_VERTEX_BASE_URL")
    prefix = "" if location == "global" or env.get("GOOGLE_API_KEY") else f"{location}-"
    return base_url or f"https://{prefix}aiplatform.googleapis.com"
