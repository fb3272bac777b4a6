"""The files of the page: what `web/frontend` was built into, and the headers that they go out with.

Called by `web/routes`. Serves what is in `static` and nothing else.
"""

import gzip
import mimetypes
import secrets
from functools import lru_cache
from pathlib import Path

from starlette.responses import Response

STATIC = Path(__file__).parent / "static"
INDEX = "index.html"
NONCE = b"__CSP_NONCE__"
HOW_TO_BUILD = "scripts/page in a checkout, with Node 20 or newer; then install from there"

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}';"
    " img-src 'self' data:; font-src 'self' data:; connect-src 'self'; manifest-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
COMMON = {
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
ZIPPED = ("text/", "application/javascript", "application/json", "image/svg")
TYPES = {".js": "text/javascript", ".webmanifest": "application/manifest+json"}


def is_built(static: Path = STATIC) -> bool:
    """Whether there is a page to serve."""
    return (static / INDEX).is_file()


def page(static: Path = STATIC) -> Response | None:
    """The page, with a nonce of its own; None if it was not built."""
    path = static / INDEX
    if not path.is_file():
        return None
    nonce = secrets.token_urlsafe(16)
    headers = {
        **COMMON,
        "Content-Security-Policy": POLICY.format(nonce=nonce),
        "Cache-Control": "no-store",
    }
    body = path.read_bytes().replace(NONCE, nonce.encode())
    return Response(body, headers=headers, media_type="text/html")


def find_file(name: str, zipped: bool, static: Path = STATIC) -> Response | None:
    """One of the built files; None if there is none of that name."""
    if "\0" in name:  # which the system's calls refuse
        return None
    path = (static / name).resolve()
    if not path.is_relative_to(static.resolve()) or not path.is_file() or path.name == INDEX:
        return None
    media = TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0]
    media = media or "application/octet-stream"
    is_zipped = zipped and media.startswith(ZIPPED)
    body = _read(path, path.stat().st_mtime_ns, is_zipped)
    is_named_by_content = path.is_relative_to(static.resolve() / "assets")
    headers = {
        **COMMON,
        "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
        # Only for whoever is logged in, so not for caches on the way.
        "Cache-Control": "private, max-age=31536000, immutable"
        if is_named_by_content
        else "no-cache",
        "Vary": "Accept-Encoding",
        **({"Content-Encoding": "gzip"} if is_zipped else {}),
    }
    return Response(body, headers=headers, media_type=media)


@lru_cache(64)
def _read(path: Path, _changed: int, is_zipped: bool) -> bytes:
    data = path.read_bytes()
    return gzip.compress(data, 6, mtime=0) if is_zipped else data
