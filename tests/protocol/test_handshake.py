"""`docs/protocol.md` 7: which connection a channel goes on over, and from which frame."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.errors import ChannelError
from anabranch.protocol.handshake import (
    Abandon,
    Continue,
    Handshake,
    Hello,
    Progress,
    Resume,
    Welcome,
)

DIALER, LISTENER = Handshake("b.0"), Handshake("a.0", incarnation=3)
HERE, THERE = Progress(7, 5), Progress(4, 2)


def greeted(*hellos: Hello, connected: bool = False) -> Handshake:
    """A listener that has heard these, the last of which was followed by RESUME or not."""
    listener = LISTENER
    for hello in hellos:
        listener, _ = listener.greeted(hello, HERE)
    return replace(listener, connected=connected)


def test_both_ends_say_what_they_have_and_go_on_from_what_the_other_has() -> None:
    dialer, said = DIALER.opened()
    hello = Hello(1, 1)
    assert said == (hello,)
    listener, said = LISTENER.greeted(hello, THERE)
    welcome = Welcome(3, THERE)
    assert said == (welcome,)
    dialer, said = dialer.welcomed(welcome, HERE)
    assert said == (Resume(HERE), Continue(THERE))
    listener, said = listener.resumed(hello, Resume(HERE))
    assert said == (Continue(HERE),)
    assert dialer == Handshake("b.0", 1, 3, hello, connected=True)
    assert listener == Handshake("a.0", 3, 1, hello, connected=True)


def test_a_dialer_counts_its_connections() -> None:
    assert DIALER.opened().handshake.opened().actions == (Hello(1, 2),)


@pytest.mark.parametrize("newer", [Hello(1, 3), Hello(2, 1)], ids=["connection", "incarnation"])
def test_a_newer_connection_takes_the_place_of_the_one_before(newer: Hello) -> None:
    """H1. The old one is abandoned before anything is said on the new one."""
    listener, actions = greeted(Hello(1, 2), connected=True).greeted(newer, HERE)
    assert actions == (Abandon(Hello(1, 2)), Welcome(3, HERE))
    assert (listener.newest, listener.connected) == (newer, False)


def test_a_connection_that_never_came_so_far_need_not_be_abandoned() -> None:
    assert greeted(Hello(1, 1)).greeted(Hello(1, 2), HERE).actions == (Welcome(3, HERE),)


@pytest.mark.parametrize("number", [1, 2])
def test_a_greeting_that_is_not_newer_is_refused(number: int) -> None:
    """H1."""
    with pytest.raises(ChannelError, match=f"connection {number} of a.0 comes behind a newer one"):
        greeted(Hello(1, 2)).greeted(Hello(1, number), HERE)


def test_an_earlier_incarnation_is_fenced_out_at_both_ends() -> None:
    """H2, also if the newer one was met by an earlier incarnation of this end."""
    with pytest.raises(ChannelError, match=r"incarnation 1 of a\.0 is fenced out: incarnation 2"):
        greeted(Hello(2, 1)).greeted(Hello(1, 9), HERE)
    with pytest.raises(ChannelError, match=r"incarnation 1 of a\.0 is fenced out: incarnation 2"):
        replace(LISTENER, peer_incarnation=2).greeted(Hello(1, 9), HERE)
    dialer = replace(DIALER, peer_incarnation=2).opened().handshake
    with pytest.raises(ChannelError, match=r"incarnation 1 of b\.0 is fenced out: incarnation 2"):
        dialer.welcomed(Welcome(1, THERE), HERE)


@pytest.mark.parametrize("older", [Hello(1, 1), Hello(1, 2)], ids=["number", "incarnation"])
def test_a_resume_on_an_older_connection_is_refused(older: Hello) -> None:
    """H4: it says what the dialer had before it lost that connection."""
    newer = Hello(2, 2) if older.number == 2 else Hello(1, 2)
    with pytest.raises(ChannelError, match=r"a\.0 has a newer connection by now"):
        greeted(older, newer).resumed(older, Resume(THERE))


def test_only_the_loss_of_the_newest_connection_counts() -> None:
    listener = greeted(Hello(1, 1), Hello(1, 2), connected=True)
    assert listener.broken(Hello(1, 1)) == listener
    assert listener.broken(Hello(1, 2)) == replace(listener, connected=False)
    with pytest.raises(ChannelError):  # and what was heard of it is not forgotten
        listener.broken(Hello(1, 2)).greeted(Hello(1, 2), HERE)
