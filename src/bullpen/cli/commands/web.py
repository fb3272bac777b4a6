"""`bullpen web`: the web view of this home."""

import datetime
import os
import time
from typing import TYPE_CHECKING

import click

from bullpen.cli import output
from bullpen.cli.help_text import Group
from bullpen.cli.view import find_view, refuse_agent, start_view, stop_view
from bullpen.client.start import answers, start_hub
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import Home, current_home
from bullpen.home.supervised import find_above

if TYPE_CHECKING:
    from bullpen.web.config import WebConfig

DOWN = 3

qr_option = click.option("--qr", is_flag=True, help="Also the log-in address, as a QR code.")


@click.group(cls=Group, invoke_without_command=True)
@qr_option
@click.pass_context
def command(context: click.Context, qr: bool) -> None:
    """Serve a page with everything that goes on, for browsers and phones.

    Over TLS, at port 8443 of this machine, for whoever has the token (BULLPEN_WEB_TOKEN in the
    home's .env). Settings are in web/config.yaml in the home.
    """
    if context.invoked_subcommand is None:
        if not qr:
            raise click.UsageError("what? start, stop, status or open · or --qr")
        _show(current_home(), as_json=False, qr=True)


@command.command()
@click.option("--foreground", is_flag=True, help="Stay, for a supervisor such as systemd.")
@click.option("--regen-cert", is_flag=True, help="With a new certificate.")
@qr_option
@output.json_option
def start(foreground: bool, regen_cert: bool, qr: bool, as_json: bool) -> None:
    """Start the view, unless it runs."""
    home = current_home()
    refuse_agent()
    running = find_view(home)
    if regen_cert:
        if running is not None:
            raise BullpenError(
                "the view runs, with the certificate that it has",
                hint="bullpen web stop, then start it with --regen-cert",
                kind=Kind.CONFLICT,
            )
        _make_certificate(home)
    if foreground:
        if not answers(home):
            start_hub(home, os.environ)
        if running is not None:
            raise BullpenError(f"the view runs already: pid {running.pid}", kind=Kind.CONFLICT)
        from bullpen.web.view import run_view

        raise click.exceptions.Exit(run_view(home))
    start_view(home)
    _show(home, as_json, qr)


@command.command()
@output.json_option
def stop(as_json: bool) -> None:
    """Stop the view. Agents and the hub go on."""
    was_running = stop_view(current_home())
    if as_json:
        output.write_json({"stopped": was_running})
    else:
        output.write("view stopped" if was_running else "the view is not running")


@command.command(name="open")
@output.json_option
def open_page(as_json: bool) -> None:
    """Open the page in your browser, logged in. Start the view, unless it runs."""
    from bullpen.web.browser import open_browser
    from bullpen.web.config import load_web_config, web_directory

    home = current_home()
    start_view(home)
    address = _address(load_web_config(home))
    login = _login(home, address)
    is_open = open_browser(login, web_directory(home) / "open.html")
    if as_json:
        output.write_json({"url": address, "opened": is_open})
    elif is_open:
        output.write(f"opened {address} in your browser")
    else:
        output.write("there is no browser here")
        _show_login(login)


@command.command()
@qr_option
@output.json_option
def status(qr: bool, as_json: bool) -> None:
    """Say whether the view runs, and where. Exit code 3 if it does not."""
    _show(current_home(), as_json, qr)


def _make_certificate(home: Home) -> None:
    from bullpen.web.config import load_web_config, own_files
    from bullpen.web.tls import prepare_certificate

    config = load_web_config(home)
    if own_files(config, home) is not None:
        raise BullpenError(
            "the certificate is your own: tls in web/config.yaml names it",
            hint="renew it where you got it",
            kind=Kind.CONFLICT,
        )
    prepare_certificate(home, config, again=True)


def _show(home: Home, as_json: bool, qr: bool) -> None:
    from bullpen.web import certificate, files, tls
    from bullpen.web.config import load_web_config, own_files, shown_address, web_directory

    config = load_web_config(home)
    running = find_view(home)
    if running is None:
        if as_json:
            output.write_json({"running": False})
        elif (above := find_above(web_directory(home))) is not None:
            output.write(f"the view {above.text(time.time())}")
        else:
            output.write("the view is not running · bullpen web start")
        raise click.exceptions.Exit(DOWN)
    address = _address(config)
    own = own_files(config, home)
    cert = own[0] if own else tls.own(web_directory(home)).cert
    days = certificate.days_left(cert, datetime.datetime.now(datetime.UTC))
    fingerprint = certificate.fingerprint(cert)
    fields = {
        "running": True,
        "name": running.name,
        "pid": running.pid,
        "url": address,
        "certificate": {"sha256": fingerprint, "days_left": days},
        "built": files.is_built(),
    }
    if as_json:
        output.write_json(fields)
        return
    output.write(f"{running.name} serves {address} · pid {running.pid}")
    if not files.is_built():
        output.write(f"the page is not built · {files.HOW_TO_BUILD}")
    if qr:
        _show_qr(home, shown_address(config, _reachable(config)))
    else:
        output.write("log in: bullpen web --qr · the token is BULLPEN_WEB_TOKEN in the home's .env")
    output.write(f"certificate for {days} days, SHA-256 {fingerprint}")
    if own is None:
        output.write(f"browsers trust it with {output.printable(str(cert.parent / 'ca.pem'))}")


def _address(config: "WebConfig") -> str:
    """For browsers of this machine."""
    from bullpen.web import machine
    from bullpen.web.config import shown_address

    own_name = (*machine.host_names(), "localhost")[1]
    return shown_address(config, "localhost" if _is_local(config) else own_name)


def _reachable(config: "WebConfig") -> str:
    from bullpen.web import machine

    return "localhost" if _is_local(config) else str(machine.network_address())


def _is_local(config: "WebConfig") -> bool:
    return config.bind in ("127.0.0.1", "::1")


def _login(home: Home, address: str) -> str:
    from bullpen.web.token import ensure_token

    return f"{address}/?token={ensure_token(home)}"


def _show_login(login: str) -> None:
    output.write(f"log in: {login}")
    output.write("whoever has this address can do what you can: show it to nobody")


def _show_qr(home: Home, address: str) -> None:
    from bullpen.web.qr import qr_text

    login = _login(home, address)
    output.write(qr_text(login).rstrip("\n"))
    _show_login(login)
