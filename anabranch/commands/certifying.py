"""What the commands that make certificates have in common."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from anabranch.commands.failing import Refusal, WrongUsage, in_words
from anabranch.commands.telling import say

F = TypeVar("F", bound=Callable[..., Any])


def _ca_folder() -> str:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return str(Path(state) / "anabranch" / "ca")


ca_option = click.option(
    "--ca",
    type=click.Path(path_type=Path, file_okay=False),
    default=_ca_folder,
    envvar="ANABRANCH_CA",
    metavar="DIR",
    help="Folder of the authority; by default in ~/.local/state/anabranch.",
)


def days_option(default: int) -> Callable[[F], F]:
    return click.option(
        "--days",
        type=click.IntRange(1, 36_500),
        default=default,
        show_default=True,
        help="How long it is valid.",
    )


roles_option = click.option(
    "--role",
    "roles",
    multiple=True,
    metavar="ROLE",
    help="agent, view, submit or operate; may be repeated. Without it: agent.",
)
addresses_option = click.option(
    "--address",
    "addresses",
    multiple=True,
    metavar="HOST",
    help="Name or IP address where others reach an agent; may be repeated.",
)


replace_option = click.option(
    "--replace", is_flag=True, help="Replace the key and certificate that are there."
)


@contextmanager
def certifying() -> Iterator[None]:
    """Report what cannot be done, as commands do."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise WrongUsage(
            "this needs the package cryptography, which is not installed: "
            "pip install 'anabranch[hosts]'"
        ) from None
    from anabranch.authority import AuthorityError

    try:
        yield
    except AuthorityError as error:
        raise WrongUsage(str(error)) from None
    except OSError as error:
        raise Refusal(in_words(error)) from None


def may_write(folder: Path, replace: bool) -> None:
    from anabranch.authority import IDENTITY, is_identity

    if is_identity(folder) and not replace:
        raise WrongUsage(f"{folder / IDENTITY} is there already; --replace replaces it")


def tell_identity(
    folder: Path, chain: bytes, addresses: tuple[str, ...] | list[str], as_json: bool
) -> None:
    import msgspec

    from anabranch.authority import facts_of

    facts = facts_of(chain, addresses)
    if as_json:
        say(msgspec.json.encode({**facts, "folder": str(folder)}).decode())
        return
    roles = ", ".join(str(role) for role in facts["roles"])  # type: ignore[attr-defined]
    where = f" at {', '.join(addresses)}" if addresses else ""
    say(f"{facts['name']} ({roles}){where}, valid until {str(facts['valid_until'])[:10]}: {folder}")
