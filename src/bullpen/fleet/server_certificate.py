"""The server's TLS certificate, signed by itself, and how hosts know it: they trust it alone.

Made once by `keys`, in the fleet's directory; every host's credential holds it. So no name and
no authority of the world's counts, and whoever is reached without its key is not the server.
"""

import datetime
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bullpen.files import write_atomically

DAYS = 3650
BACKDATED = datetime.timedelta(days=1)  # clocks differ


def ensure_certificate(directory: Path) -> str:
    """The certificate, made if it is not there: `server.pem`, with its key in `server.key`."""
    certificate = directory / "server.pem"
    if not certificate.exists():
        key, text = _make()
        write_atomically(directory / "server.key", key, 0o600)
        write_atomically(certificate, text)
    return certificate.read_text()


def trusting(certificate: str) -> ssl.SSLContext:
    """A client's TLS that takes this certificate and no other."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the server is known by its key, wherever it runs
    context.load_verify_locations(cadata=certificate)
    return context


def _make() -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bullpen fleet")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private.decode(), certificate.public_bytes(pem).decode()
