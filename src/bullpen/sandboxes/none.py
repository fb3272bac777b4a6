"""No sandbox: used when the role disables it. Never used because one is unavailable."""

from collections.abc import Mapping

from bullpen.sandboxes.base import Policy, WrappedCommand


class NoSandbox:
    """The program as it is."""

    name = "none"

    def unavailable(self) -> str:
        return ""

    def prepare(self, policy: Policy) -> None:
        """Nothing is needed."""

    def wrap(self, argv: tuple[str, ...], env: Mapping[str, str], policy: Policy) -> WrappedCommand:  # noqa: ARG002
        return WrappedCommand(argv, dict(env))


NONE = NoSandbox()
