"""Makes the view's certificate: `web/cert.pem`, signed by a private CA of this home, `web/ca.pem`.

Run by `web/tls` as a process of its own (`python -m bullpen.web.certificate HOME [again]`): what it
imports takes 8 MB. A person may trust `ca.pem` in a browser; so the CA is good for this machine's
names and private networks alone: who steals its key cannot pose as other sites. ECDSA P-256:
Chromium refuses Ed25519.
"""

import datetime
import ipaddress
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from bullpen.files import write_atomically
from bullpen.home.paths import Home
from bullpen.web import machine
from bullpen.web.config import load_web_config, web_directory
from bullpen.web.machine import Address
from bullpen.web.tls import Files, ca_file, own

CERT_DAYS = 365
CA_DAYS = 3650
RENEW_DAYS = 30  # before its end
BACKDATED = datetime.timedelta(hours=1)  # clocks differ
NETWORKS = (
    "127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10",
    "::1/128", "fc00::/7",
)  # fmt: skip

Key = ec.EllipticCurvePrivateKey


class Wanted(NamedTuple):
    """Whom the certificate is for."""

    names: tuple[str, ...]
    addresses: tuple[Address, ...]


def ensure(directory: Path, wanted: Wanted, now: datetime.datetime, *, again: bool = False) -> bool:
    """Make or renew what is missing, nearly over, or for other names; True if it did. `again`: a
    new certificate in any case. The CA stays for as long as it can sign it."""
    directory.mkdir(mode=0o700, exist_ok=True)
    files = own(directory)
    if not again and _is_good(directory, files, wanted, now):
        return False
    ca, ca_key = _load_ca(directory, wanted, now) or _make_ca(directory, wanted, now)
    key = ec.generate_private_key(ec.SECP256R1())
    cert = _sign(ca, ca_key, key, wanted, now)
    # The key first: a crash between the two leaves a pair that does not fit, which is made again.
    _write_key(files.key, key)
    write_atomically(files.cert, _pem(cert) + _pem(ca))
    return True


def fingerprint(cert: Path) -> str:
    """SHA-256 of the certificate, as browsers show it."""
    digest = _read_cert(cert).fingerprint(hashes.SHA256()).hex().upper()
    return " ".join(digest[start : start + 4] for start in range(0, len(digest), 4))


def days_left(cert: Path, now: datetime.datetime) -> int:
    """How long it is good for; negative once it is over."""
    return (_read_cert(cert).not_valid_after_utc - now).days


# ── what is there ──


def _is_good(directory: Path, files: Files, wanted: Wanted, now: datetime.datetime) -> bool:
    ca = _load_ca(directory, wanted, now)
    try:
        cert, key = _read_cert(files.cert), _read_key(files.key)
    except (OSError, ValueError):
        return False
    if ca is None or cert.public_key() != key.public_key():
        return False
    try:
        cert.verify_directly_issued_by(ca[0])
        names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, InvalidSignature, ValueError, TypeError):
        return False
    is_named = set(wanted.names) <= set(names.get_values_for_type(x509.DNSName))
    is_addressed = set(_certifiable(wanted.addresses, ca[0])) <= set(
        names.get_values_for_type(x509.IPAddress)
    )
    return is_named and is_addressed and _lasts(cert, now)


def _lasts(cert: x509.Certificate, now: datetime.datetime) -> bool:
    left = cert.not_valid_after_utc - now
    return cert.not_valid_before_utc <= now and left > datetime.timedelta(days=RENEW_DAYS)


def _load_ca(
    directory: Path, wanted: Wanted, now: datetime.datetime
) -> tuple[x509.Certificate, Key] | None:
    """The CA, if it can sign for those names."""
    try:
        ca, key = _read_cert(ca_file(directory)), _read_key(directory / "ca-key.pem")
        limits = ca.extensions.get_extension_for_class(x509.NameConstraints).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return None
    allowed = {
        each.value for each in limits.permitted_subtrees or () if isinstance(each.value, str)
    }
    is_fit = set(wanted.names) <= allowed and ca.public_key() == key.public_key()
    return (ca, key) if is_fit and _lasts(ca, now) else None


# ── making ──


def _make_ca(
    directory: Path, wanted: Wanted, now: datetime.datetime
) -> tuple[x509.Certificate, Key]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"Bullpen on {wanted.names[-1]}"[:64])
    networks = [ipaddress.ip_network(each) for each in NETWORKS]
    networks += [ipaddress.ip_network(str(each)) for each in wanted.addresses]
    permitted: list[x509.GeneralName] = [x509.DNSName(each) for each in wanted.names]
    permitted += [x509.IPAddress(each) for each in dict.fromkeys(networks)]
    ca = (
        _builder(name, name, key, CA_DAYS, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(is_ca=True), critical=True)
        .add_extension(x509.NameConstraints(permitted, None), critical=True)
        .sign(key, hashes.SHA256())
    )
    _write_key(directory / "ca-key.pem", key)
    write_atomically(ca_file(directory), _pem(ca))
    return ca, key


def _sign(
    ca: x509.Certificate, ca_key: Key, key: Key, wanted: Wanted, now: datetime.datetime
) -> x509.Certificate:
    names: list[x509.GeneralName] = [x509.DNSName(each) for each in wanted.names]
    names += [x509.IPAddress(each) for each in _certifiable(wanted.addresses, ca)]
    issuer = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    return (
        _builder(_name(wanted.names[-1][:64]), ca.subject, key, CERT_DAYS, now)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(is_ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )


def _certifiable(addresses: Sequence[Address], ca: x509.Certificate) -> list[Address]:
    """Those that the CA may sign for: of private networks, and what this machine had before."""
    limits = ca.extensions.get_extension_for_class(x509.NameConstraints).value
    networks = [each.value for each in limits.permitted_subtrees or ()]
    networks = [each for each in networks if not isinstance(each, str)]
    return [one for one in addresses if any(one in network for network in networks)]


def _builder(
    subject: x509.Name, issuer: x509.Name, key: Key, days: int, now: datetime.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_ca,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


# ── files ──


def _pem(cert: x509.Certificate) -> str:
    return cert.public_bytes(serialization.Encoding.PEM).decode()


def _write_key(path: Path, key: Key) -> None:
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    write_atomically(path, pem.decode(), mode=0o600)


def _read_cert(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def _read_key(path: Path) -> Key:
    """The key, which nobody else can read."""
    if path.stat().st_mode & 0o077 or path.stat().st_uid != os.geteuid():
        raise ValueError("open to others")
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("no ECDSA key")
    return key


def main(home: Home, *, again: bool) -> None:
    """Make or renew the certificate of that home."""
    config = load_web_config(home)
    wanted = Wanted((*machine.host_names(), *config.hosts), machine.addresses())
    ensure(web_directory(home), wanted, datetime.datetime.now(datetime.UTC), again=again)


if __name__ == "__main__":
    main(Home(Path(sys.argv[1])), again=sys.argv[2:] == ["again"])
