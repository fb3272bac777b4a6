"""No walls: what a disabled sandbox is. Never what an unavailable one becomes."""

from collections.abc import Mapping

from bullpen.sandboxes.base import Policy, Wrapped


class NoSandbox:
    """The program as it is."""

    name = "none"

    def unavailable(self) -> str:
        return ""

    def prepare(self, policy: Policy) -> None:
        """Nothing is needed."""

    def wrap(self, argv: tuple[str, ...], env: Mapping[str, str], policy: Policy) -> Wrapped:  # noqa: ARG002
        return Wrapped(argv, dict(env))


NONE = NoSandbox()
