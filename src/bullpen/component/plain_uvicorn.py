"""uvicorn without its command line, for which it loads click and what starts several processes:
1.6 MB of every component and of the hub.

Imported by `component/http_server` and `component/connection`, which take all that they need of
uvicorn from here. Whoever imports `uvicorn.main` still gets it.
"""

import sys
from types import ModuleType

__all__ = [
    "ClientDisconnected",
    "Config",
    "HttpToolsProtocol",
    "Server",
    "WebSocketsSansIOProtocol",
]

COMMAND_LINE = "uvicorn.main"
NAMES = ("Server", "main", "run")  # what the package takes from it

_is_first = "uvicorn" not in sys.modules
if _is_first:
    _stand_in = ModuleType(COMMAND_LINE)
    vars(_stand_in).update(dict.fromkeys(NAMES))
    sys.modules[COMMAND_LINE] = _stand_in
try:
    from uvicorn.config import Config
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    from uvicorn.protocols.utils import ClientDisconnected
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
    from uvicorn.server import Server
finally:
    if _is_first:
        del sys.modules[COMMAND_LINE]
if _is_first:
    _package = vars(sys.modules["uvicorn"])
    _package["Server"] = Server
    del _package["main"], _package["run"]  # nothing is better than one that does nothing
