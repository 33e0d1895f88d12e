"""`anabranch ca`: certificates for hosts and for people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from anabranch.commands.ca_joining import join, serve, token
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
from anabranch.commands.failing import WrongUsage
from anabranch.commands.shared_options import json_option
from anabranch.commands.telling import say

if TYPE_CHECKING:
    from anabranch.authority import Authority

EXAMPLES = """\b
Examples:
  anabranch ca init
  anabranch ca issue press-1 --address 10.0.0.1 --out press-1
  anabranch ca issue ann --role operate --out ~/.config/anabranch/tls
  anabranch ca rotate
  (umask 077; anabranch ca token press-4 --address 10.0.0.4 > press-4.token)
  anabranch ca serve --bind 10.0.0.9
  anabranch ca join 10.0.0.9 --token-file press-4.token

\b
Roles: agent (of a host: takes part in the gossip), view (hosts, status, logs), submit (also submit
pipelines and stop them), operate (also what others have submitted). A person with the role submit
runs code as the user of the agent.
Everyone who has the key of the authority can do all of that: keep its folder on a machine that is
none of the hosts, and a copy of it in a safe place.
Exit code: 0 done, 1 it could not be done, 2 wrong usage.
"""


@click.group(epilog=EXAMPLES)
def command() -> None:
    """Make certificates for hosts and for people."""


@command.command(
    epilog="\b\nExamples:\n  anabranch ca init\n  anabranch ca init --ca /media/usb/ca"
)
@ca_option
@days_option(3650)
@json_option
def init(ca: Path, days: int, as_json: bool) -> None:
    """Make an authority: the key by which all certificates are signed."""
    with certifying():
        from anabranch.authority import AUTHORITY, new_authority, save

        if (ca / AUTHORITY).exists():
            raise WrongUsage(
                f"{ca} has an authority already; `anabranch ca rotate` makes a new one in its "
                "place, --ca names another folder"
            )
        made = new_authority(days)
        save(ca, made)
    _tell(ca, made, as_json)


@command.command(
    epilog="""\b
Examples:
  anabranch ca rotate
  anabranch ca rotate --end-overlap

\b
Both authorities are trusted from then on, so hosts may get their new certificates
(`anabranch ca issue NAME --replace`) one after the other, in any order. When all have one,
--end-overlap ends the trust in the one before; issue once more then, or copy ca.pem to the hosts.
"""
)
@ca_option
@click.option("--end-overlap", is_flag=True, help="Trust the authority before no more.")
@days_option(3650)
@json_option
def rotate(ca: Path, end_overlap: bool, days: int, as_json: bool) -> None:
    """Make a new authority in place of one that grows old or was stolen."""
    with certifying():
        from anabranch.authority import load, save

        old = load(ca)
        if end_overlap and old.before is None:
            raise WrongUsage(f"{ca} has one authority only; no overlap is there to be ended")
        if not end_overlap and old.before is not None:
            raise WrongUsage(
                "the overlap with the authority before goes on; when all hosts have new "
                "certificates, end it with `anabranch ca rotate --end-overlap`"
            )
        made = old.alone() if end_overlap else old.followed(days)
        save(ca, made)
    _tell(ca, made, as_json)


def _tell(folder: Path, authority: Authority, as_json: bool) -> None:
    import msgspec

    from anabranch.authority import AUTHORITY, CA, day, fingerprint

    known = [c for c in (authority.certificate, authority.before) if c is not None]
    if as_json:
        trusted = [
            {
                "name": c.subject.rfc4514_string(),
                "fingerprint": fingerprint(c).hex(),
                "valid_until": c.not_valid_after_utc.isoformat(),
            }
            for c in known
        ]
        files = {"key": str(folder / AUTHORITY), "ca": str(folder / CA)}
        say(msgspec.json.encode({"trusted": trusted, **files}).decode())
        return
    for one in known:
        until = day(one.not_valid_after_utc)
        say(f"{one.subject.rfc4514_string()}, valid until {until}, {fingerprint(one).hex()}")
    say(f"key: {folder / AUTHORITY}; what hosts trust: {folder / CA}")


@command.command(
    epilog="""\b
Examples:
  anabranch ca issue press-1 --address 10.0.0.1 --out press-1
  anabranch ca issue ann --role submit --out ~/.config/anabranch/tls
  anabranch ca issue press-1 --address 10.0.0.1 --out press-1 --replace

\b
Writes identity.pem (the key and its certificate; mode 0600) and ca.pem. The folder is what
`anabranch agent --tls DIR` and commands with --tls take. The certificate of an agent also
holds for localhost, so that commands on its machine reach it there.
"""
)
@click.argument("name", metavar="NAME")
@roles_option
@addresses_option
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="By default NAME.",
)
@replace_option
@days_option(365)
@ca_option
@json_option
def issue(
    name: str,
    roles: tuple[str, ...],
    addresses: tuple[str, ...],
    out: Path | None,
    replace: bool,
    days: int,
    ca: Path,
    as_json: bool,
) -> None:
    """Make a key and a certificate for the host or the person NAME."""
    with certifying():
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        from anabranch.authority import Wanted, check, load, save_identity

        wanted = Wanted(name, roles or ("agent",), addresses, days)
        check(wanted)
        folder = Path(name) if out is None else out
        may_write(folder, replace)
        authority = load(ca)
        key = Ed25519PrivateKey.generate()
        chain = authority.issue(wanted, key.public_key())
        save_identity(folder, key, chain, authority.trusted)
    tell_identity(folder, chain, addresses, as_json)


for each in (token, serve, join):
    command.add_command(each)
