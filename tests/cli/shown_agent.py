"""An agent as the hub shows it, for fakes of a hub."""


def shown_agent(name: str, **fields: object) -> dict[str, object]:
    """All that its type asks for."""
    return {
        "name": name,
        "run": "1",
        "cwd": "/",
        "created": "2026-01-01T00:00:00Z",
        "state": {"state": "idle"},
        "words": "idle",
        "since": 0.0,
        "running": True,
        "tokens": 0,
        "usd": 0.0,
        "messages": 0,
        "summary": "",
        **fields,
    }
