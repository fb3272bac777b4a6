"""httpx without its command line, for which it loads click, rich and pygments where they are there:
6 MB of every component.

Imported by `client/async_hub` and by who else speaks HTTP. Whoever wants that command line still
gets it.
"""

import sys
from typing import Any

__all__ = ["httpx"]

COMMAND_LINE = "httpx._main"

_modules: dict[str, Any] = sys.modules
_is_ours = "httpx" not in _modules
if _is_ours:
    _modules[COMMAND_LINE] = None  # an import of it fails, which httpx is prepared for
try:
    import httpx
finally:
    if _is_ours:
        del _modules[COMMAND_LINE]
