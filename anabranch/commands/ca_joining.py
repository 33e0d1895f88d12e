"""`anabranch ca token`, `serve` and `join`: certificates for hosts that have none yet."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import click

from anabranch.commands.agent_options import with_port
from anabranch.commands.certifying import (
    addresses_option,
    ca_option,
    certifying,
    days_option,
    may_write,
    replace_option,
    roles_option,
    tell_identity,
)
from anabranch.commands.failing import Refusal, WrongUsage
from anabranch.commands.shared_options import json_option
from anabranch.commands.telling import say

PORT = 7434


@click.command(
    epilog="""\b
Examples:
  (umask 077; anabranch ca token press-4 --address 10.0.0.4 > press-4.token)
  anabranch ca token ann --role operate --minutes 10

\b
A token can be used once, until it expires. Everyone who has it can get that certificate: give it
to the new host alone. It is printed on standard output, and kept nowhere else.
"""
)
@click.argument("name", metavar="NAME")
@roles_option
@addresses_option
@click.option(
    "--minutes",
    type=click.IntRange(1, 10_080),
    default=60,
    show_default=True,
    help="How long the token is good.",
)
@days_option(365)
@ca_option
@json_option
def token(
    name: str,
    roles: tuple[str, ...],
    addresses: tuple[str, ...],
    minutes: int,
    days: int,
    ca: Path,
    as_json: bool,
) -> None:
    """Make a token by which the host or the person NAME gets a certificate."""
    with certifying():
        from anabranch.authority import Wanted
        from anabranch.joining import new_token

        made = new_token(ca, Wanted(name, roles or ("agent",), addresses, days), minutes * 60.0)
    if as_json:
        import msgspec

        say(msgspec.json.encode({"token": str(made), "minutes": minutes}).decode())
    else:
        say(str(made))


@click.command(
    epilog="""\b
Examples:
  anabranch ca serve --bind 10.0.0.9
  anabranch ca serve --bind 127.0.0.1:0

\b
On the machine of the authority: answers `anabranch ca join` until each token is used or has
expired. Nothing else is answered, and the key of the authority stays here.
"""
)
@click.option(
    "--bind",
    default=f"127.0.0.1:{PORT}",
    show_default=True,
    metavar="HOST[:PORT]",
    callback=with_port(PORT, may_be_0=True),
    help="Where to listen.",
)
@ca_option
def serve(bind: str, ca: Path) -> None:
    """Give certificates to those that have a token, until none is left."""
    with certifying():
        from anabranch.joining import JoinService
        from anabranch.runtime.live.hosts.agent_log import AgentLog
        from anabranch.runtime.live.hosts.refusals import Refusals

        host, _, port = bind.rpartition(":")
        service = JoinService(ca, say, Refusals(AgentLog("ca", as_json=False)))

        def listening(port: int) -> None:
            say(f"the authority listens at {host}:{port}; Ctrl-C ends it")

        asyncio.run(_until_ctrl_c(service.serve(host.strip("[]"), int(port), listening)))


async def _until_ctrl_c(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(work)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        return


@click.command(
    epilog="""\b
Examples:
  anabranch ca join 10.0.0.9 --token-file press-4.token --out /etc/anabranch/tls
  ssh authority anabranch ca token press-4 | anabranch ca join 10.0.0.9 --out tls

\b
Makes a key here, and has its certificate signed. The token comes from a file or from standard
input, where it is not shown, and is sent only to the authority that has made it.
"""
)
@click.argument("address", metavar="HOST[:PORT]", callback=with_port(PORT))
@click.option(
    "--token-file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="With it."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default="tls",
    show_default=True,
    metavar="DIR",
    help="Where key and certificate are written.",
)
@replace_option
@json_option
def join(address: str, token_file: Path | None, out: Path, replace: bool, as_json: bool) -> None:
    """Get a certificate from the authority at ADDRESS, for a token."""
    with certifying():
        from anabranch.authority import make_identity_folder, save_identity
        from anabranch.joining import JoinError, Token
        from anabranch.joining import join as joined

        may_write(out, replace)
        host, _, port = address.rpartition(":")
        try:
            known = Token.read(_text(token_file))
            make_identity_folder(out)  # a token is used up even if nothing can be written
            key, accepted = asyncio.run(joined(host.strip("[]"), int(port), known))
        except JoinError as error:
            raise Refusal(str(error)) from None
        save_identity(out, key, accepted.chain, accepted.ca)
    tell_identity(out, accepted.chain, [], as_json)


def _text(token_file: Path | None) -> str:
    if token_file is not None:
        try:
            return token_file.read_text("ascii", "replace")
        except OSError as error:
            raise WrongUsage(f"--token-file {token_file}: {error.strerror}") from None
    if sys.stdin.isatty():
        return str(click.prompt("Token", hide_input=True, err=True))
    return sys.stdin.readline()
