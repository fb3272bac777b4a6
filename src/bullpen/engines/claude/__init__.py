"""Claude Code as an agent: its flags, files, hooks and lines of output are known here alone.

Elsewhere are: its logins (`home/credentials`), the names of its metrics (`hub/usage/metrics`), the
versions that are needed (`engines/versions`), and the run of it that judges permission requests
(`hub/permissions/reviewer`). `bullpen auth claude` calls `config` to prepare a log-in. Must not
start it, nor know another engine.
"""

from bullpen.engines.base import Engine
from bullpen.engines.claude.converse import ClaudeConverse
from bullpen.engines.claude.observe import ClaudeObserve
from bullpen.engines.claude.prepare import ClaudePrepare


class Claude(ClaudePrepare, ClaudeObserve, ClaudeConverse):
    """The engine."""

    name = "claude"
    lacks: tuple[str, ...] = ()


CLAUDE: Engine = Claude()
