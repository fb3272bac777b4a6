"""A key logs in and signs frames: the server cannot have it sign the one as the other."""

import asyncio
import base64
import json
import ssl
from pathlib import Path

import pytest

from bullpen.fleet import link
from bullpen.fleet.credential import issue
from bullpen.fleet.frames import decode, encode
from bullpen.fleet.nkeys import Signer, Verifier, make_seed
from bullpen.fleet.server_certificate import ensure_certificate

SUBJECT = "bullpen.h2.h1.0011223344556677-0"
SIGNED = b'{"kind":"open","n":0}\nbody'


def signed_for_server(directory: Path, nonce: str) -> tuple[bytes, str]:
    """What a server is given that has the fleet's certificate and says this nonce, and why it was
    not let go on."""

    async def both() -> tuple[bytes, str]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        credential = issue(make_seed(), "h1", make_seed(), ensure_certificate(directory))
        context.load_cert_chain(directory / "server.pem", directory / "server.key")
        given: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            info = {"server_id": "x", "version": "2.12.0", "max_payload": 1 << 20, "nonce": nonce}
            writer.write(b"INFO " + json.dumps({**info, "auth_required": True}).encode() + b"\r\n")
            line = await reader.readline()
            text = json.loads(line[8:])["sig"] if line else ""
            given.set_result(base64.b64decode(text + "=" * (-len(text) % 4)))
            writer.write(b"-ERR 'enough'\r\n")
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectionError) as caught:
            await link.connect(f"nats://127.0.0.1:{port}", credential)
        signature = await asyncio.wait_for(given, 60)
        server.close()
        is_signed = Verifier(credential.certificate.public).is_signed(nonce.encode(), signature)
        assert is_signed == bool(signature)
        return signature, str(caught.value)

    return asyncio.run(both())


def test_l5_a_host_signs_a_nonce_of_the_server(tmp_path: Path) -> None:
    signature, _ = signed_for_server(tmp_path, "Zr3kUOPJ0m_-XyA")
    assert signature


def test_l5_a_host_does_not_sign_a_frame_that_the_server_calls_a_nonce(tmp_path: Path) -> None:
    frame = f"bullpen frame\0{SUBJECT}\0".encode() + SIGNED
    signature, why = signed_for_server(tmp_path, frame.decode())
    assert not signature and "no nonce" in why


@pytest.mark.parametrize("nonce", ["", "short", "x" * 65, "with space", "a.b.c.d.e", "abcdefgh\n"])
def test_l5_what_is_no_nonce_is_not_signed(nonce: str) -> None:
    with pytest.raises(ConnectionError, match="no nonce"):
        link.sign_nonce(Signer(make_seed()), nonce)


def test_l5_what_a_key_has_signed_otherwise_is_no_frame() -> None:
    signer = Signer(make_seed())
    verifier = Verifier(signer.public)
    genuine = encode(signer, SUBJECT, {"kind": "open", "n": 0}, b"body")
    assert decode(SUBJECT, genuine).is_from(verifier) and genuine[64:] == SIGNED
    bare = signer.sign(SUBJECT.encode() + b"\0" + SIGNED)
    assert not decode(SUBJECT, bare + SIGNED).is_from(verifier)
