"""The variables with which programs send the hub what they use, where their settings say the rest.
Pure.
"""

from bullpen.engines.base import Start

# Its end waits for what it still has to send, also when the hub is away.
EXPORT_MILLISECONDS = "1000"


def telemetry(start: Start) -> dict[str, str]:
    """The token for what it sends to the hub; in the environment, not in a file."""
    token = start.env.get("BULLPEN_TOKEN", "")
    return {
        "OTEL_EXPORTER_OTLP_HEADERS": f"Authorization=Bearer {token}",
        "OTEL_EXPORTER_OTLP_TIMEOUT": EXPORT_MILLISECONDS,
        "OTEL_RESOURCE_ATTRIBUTES": f"agent.name={start.agent}",
    }
