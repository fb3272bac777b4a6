"""Which certificate the view shows, and TLS with it.

Called by `web/view` and `bullpen web`. One of our own is made by `web/certificate`, in a process of
its own: a view that runs for weeks does not carry what makes certificates.
"""

import os
import ssl
from pathlib import Path
from typing import NamedTuple

from bullpen import proc
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import Home
from bullpen.hot.own_python import module_command
from bullpen.web.config import WebConfig, own_files, web_directory

MAKE_SECONDS = 60.0


class Files(NamedTuple):
    """What TLS needs: the certificate and its key."""

    cert: Path
    key: Path


def own(directory: Path) -> Files:
    """Where ours lies."""
    return Files(directory / "cert.pem", directory / "key.pem")


def ca_file(directory: Path) -> Path:
    """What people may tell their browsers to trust."""
    return directory / "ca.pem"


def prepare_certificate(home: Home, config: WebConfig, *, again: bool = False) -> Files:
    """The certificate to show; one of our own is made or renewed if it has to be. `again`: a new
    one in any case."""
    files = own_files(config, home)
    if files is not None:
        return Files(*files)
    words = [str(home.root), *(["again"] if again else [])]
    done = proc.run(
        module_command("bullpen.web.certificate", *words),
        cwd=home.root,
        env=os.environ,
        timeout=MAKE_SECONDS,
    )
    if done.code != 0:
        lines = done.error_text.strip().splitlines()
        raise BullpenError(
            f"the certificate cannot be made: {lines[-1] if lines else f'code {done.code}'}",
            hint=f"look at {web_directory(home)}",
            kind=Kind.COMMAND_FAILED,
        )
    return own(web_directory(home))


def context(files: Files) -> ssl.SSLContext:
    """TLS 1.2 or newer with that certificate."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.set_alpn_protocols(["http/1.1"])
    load(made, files)
    return made


def load(into: ssl.SSLContext, files: Files) -> None:
    """From the next connection on that certificate counts."""
    try:
        into.load_cert_chain(files.cert, files.key)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BullpenError(
            f"the certificate {files.cert} with the key {files.key} cannot be used: {reason}",
            hint="tls in web/config.yaml · or a new one: bullpen web start --regen-cert",
            kind=Kind.COMMAND_FAILED,
        ) from error
