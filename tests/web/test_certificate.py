"""The certificate: made, renewed, signed by a CA that is good for this machine alone (V1)."""

import datetime
import ssl
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from bullpen.errors import BullpenError
from bullpen.web import tls
from bullpen.web.certificate import Wanted, days_left, ensure, fingerprint
from bullpen.web.tls import ca_file, own

NOW = datetime.datetime(2026, 11, 17, tzinfo=datetime.UTC)
WANTED = Wanted(
    ("localhost", "shop", "shop.local"),
    (ip_address("127.0.0.1"), ip_address("::1"), ip_address("192.168.1.5")),
)


def read(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def trusts(directory: Path, subject: x509.DNSName | x509.IPAddress, cert: Path | None = None):
    """What a browser does that trusts the CA."""
    store = Store([read(ca_file(directory))])
    verifier = PolicyBuilder().store(store).time(NOW.replace(tzinfo=None))
    return verifier.build_server_verifier(subject).verify(read(cert or own(directory).cert), [])


def test_v1_a_certificate_is_made_for_this_machines_names_for_one_year(tmp_path: Path) -> None:
    directory = tmp_path / "web"
    assert ensure(directory, WANTED, NOW)
    assert directory.stat().st_mode & 0o777 == 0o700
    for key in (own(directory).key, directory / "ca-key.pem"):
        assert key.stat().st_mode & 0o777 == 0o600
    cert = read(own(directory).cert)
    names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == list(WANTED.names)
    assert names.get_values_for_type(x509.IPAddress) == list(WANTED.addresses)
    assert days_left(own(directory).cert, NOW) == 365
    trusts(directory, x509.DNSName("localhost"))
    trusts(directory, x509.IPAddress(ip_address("192.168.1.5")))
    context = tls.context(own(directory))
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_v1_what_is_good_stays_as_it_is(tmp_path: Path) -> None:
    ensure(tmp_path, WANTED, NOW)
    before = fingerprint(own(tmp_path).cert)
    assert not ensure(tmp_path, WANTED, NOW + datetime.timedelta(days=300))
    assert fingerprint(own(tmp_path).cert) == before


@pytest.mark.parametrize("days", [336, 365, 366, 2000])
def test_v1_an_expired_certificate_is_renewed_by_the_same_ca(tmp_path: Path, days: int) -> None:
    ensure(tmp_path, WANTED, NOW)
    authority = ca_file(tmp_path).read_bytes()
    later = NOW + datetime.timedelta(days=days)
    assert ensure(tmp_path, WANTED, later)
    assert days_left(own(tmp_path).cert, later) == 365
    assert ca_file(tmp_path).read_bytes() == authority


def test_v1_an_expired_ca_is_made_anew(tmp_path: Path) -> None:
    ensure(tmp_path, WANTED, NOW)
    authority = ca_file(tmp_path).read_bytes()
    assert ensure(tmp_path, WANTED, NOW + datetime.timedelta(days=3640))
    assert ca_file(tmp_path).read_bytes() != authority


def test_v1_a_new_one_can_be_asked_for(tmp_path: Path) -> None:
    ensure(tmp_path, WANTED, NOW)
    before, authority = fingerprint(own(tmp_path).cert), ca_file(tmp_path).read_bytes()
    assert ensure(tmp_path, WANTED, NOW, again=True)
    assert fingerprint(own(tmp_path).cert) != before
    assert ca_file(tmp_path).read_bytes() == authority


@pytest.mark.parametrize(
    "wanted",
    [
        WANTED._replace(names=("localhost", "store", "store.local")),
        WANTED._replace(addresses=(*WANTED.addresses, ip_address("10.0.0.9"))),
    ],
    ids=["renamed", "another network"],
)
def test_v1_another_name_or_network_of_the_machine_gets_into_it(
    tmp_path: Path, wanted: Wanted
) -> None:
    ensure(tmp_path, WANTED, NOW)
    assert ensure(tmp_path, wanted, NOW)
    trusts(tmp_path, x509.DNSName(wanted.names[-1]))
    trusts(tmp_path, x509.IPAddress(wanted.addresses[-1]))


@pytest.mark.parametrize("file", ["cert.pem", "key.pem", "ca.pem", "ca-key.pem"])
@pytest.mark.parametrize("damage", ["gone", "nonsense", "of another"])
def test_v1_what_is_lost_or_damaged_is_made_again(tmp_path: Path, file: str, damage: str) -> None:
    ensure(tmp_path / "web", WANTED, NOW)
    path = tmp_path / "web" / file
    if damage == "gone":
        path.unlink()
    elif damage == "nonsense":
        path.write_text("nonsense")
    else:
        ensure(tmp_path / "other", WANTED, NOW)
        path.write_bytes((tmp_path / "other" / file).read_bytes())
    assert ensure(tmp_path / "web", WANTED, NOW)
    trusts(tmp_path / "web", x509.DNSName("localhost"))
    tls.context(own(tmp_path / "web"))


@pytest.mark.parametrize("name", ["bank.example", "evil.localhost.example"])
def test_v1_with_a_stolen_key_of_the_ca_nobody_can_pose_as_another_site(
    tmp_path: Path, name: str
) -> None:
    ensure(tmp_path, WANTED, NOW)
    # The thief signs for another name with our CA's key.
    from bullpen.web import certificate

    ca, ca_key = certificate._load_ca(tmp_path, WANTED, NOW)
    key = certificate.ec.generate_private_key(certificate.ec.SECP256R1())
    forged = certificate._sign(ca, ca_key, key, Wanted((name,), ()), NOW)
    path = tmp_path / "forged.pem"
    path.write_text(certificate._pem(forged))
    with pytest.raises(VerificationError):
        trusts(tmp_path, x509.DNSName(name), path)
    # Without the constraint it works.
    free = _without_constraints(ca, ca_key)
    store = Store([free])
    verifier = PolicyBuilder().store(store).time(NOW.replace(tzinfo=None))
    verifier.build_server_verifier(x509.DNSName(name)).verify(forged, [])


def _without_constraints(ca: x509.Certificate, key) -> x509.Certificate:
    from cryptography.hazmat.primitives import hashes

    builder = (
        x509.CertificateBuilder()
        .subject_name(ca.subject)
        .issuer_name(ca.issuer)
        .public_key(key.public_key())
        .serial_number(ca.serial_number)
        .not_valid_before(ca.not_valid_before_utc)
        .not_valid_after(ca.not_valid_after_utc)
    )
    for extension in ca.extensions:
        if not isinstance(extension.value, x509.NameConstraints):
            builder = builder.add_extension(extension.value, extension.critical)
    return builder.sign(key, hashes.SHA256())


def test_v1_a_pair_that_does_not_fit_is_said_with_what_to_do(tmp_path: Path) -> None:
    ensure(tmp_path / "a", WANTED, NOW)
    ensure(tmp_path / "b", WANTED, NOW)
    pair = tls.Files(own(tmp_path / "a").cert, own(tmp_path / "b").key)
    with pytest.raises(BullpenError, match="cannot be used") as refused:
        tls.context(pair)
    assert "config.yaml" in refused.value.hint
    with pytest.raises(BullpenError, match="No such file"):
        tls.context(tls.Files(tmp_path / "none.pem", tmp_path / "none.key"))


def test_the_fingerprint_is_as_browsers_show_it(tmp_path: Path) -> None:
    ensure(tmp_path, WANTED, NOW)
    shown = fingerprint(own(tmp_path).cert)
    assert len(shown.split()) == 16
    assert shown == shown.upper()
