"""What an end of a channel may neglect: acknowledgements, repeats, credit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from anabranch.protocol.credit import Allowance
from anabranch.protocol.replay_order import ReplayOrder
from anabranch.protocol.session import Session
from anabranch.runtime.live.channel.channel import Channel
from anabranch.runtime.live.channel.incoming import Incoming
from anabranch.runtime.live.channel.neighbourhood import Neighbourhood
from anabranch.runtime.live.channel.statements import Statements
from anabranch.runtime.live.commit.recovery import Past
from anabranch.runtime.live.instance.reception import Reception
from anabranch.runtime.live.journal.journal import Record
from anabranch.runtime.world.lapses import Lapse

Method = Callable[..., Any]


def _what_was_received(_right: property) -> property:
    return property(lambda statements: statements._session.expected)


def _safe_when_settled(settle: Method) -> Method:
    def at_once(channel: Channel, *args: Any) -> None:
        settle(channel, *args)
        log: Any = channel._log
        log.safe = max(log.safe, channel.incoming.settled)

    return at_once


def _sent_at_once(send: Method) -> Method:
    def both(channel: Channel, pieces: Any, *, at_once: bool = False) -> None:
        channel.line.write(pieces)
        send(channel, pieces, at_once=at_once)

    return both


def _without_frames(take: Method) -> Method:
    def some(past: Past, record: Record) -> None:
        take(past, Record([e for e in record.entries if e[0] != "frame"], record.pieces))

    return some


def _restored(change: Callable[[Any], None]) -> Callable[[Method], Method]:
    """After the right thing something more is done."""

    def make(restore: Method) -> Method:
        def wrong(self: Any, *args: Any) -> None:
            restore(self, *args)
            change(self)

        return wrong

    return make


def _expects_less(channel: Channel) -> None:
    channel.session.expected = max(1, channel.session.expected - 1)


def _expects_more(channel: Channel) -> None:
    handled = max(map(abs, channel.incoming.handled), default=0)
    channel.session.expected = max(channel.session.expected, handled + 1)


def _forgets_handled(incoming: Incoming) -> None:
    incoming._handled.clear()


def _forgets_ahead(incoming: Incoming) -> None:
    incoming._ahead.clear()


def _forgets_part(incoming: Incoming) -> None:
    incoming.partial = 0, 0


def _says_it_once(_resume: Method) -> Callable[..., Iterable[Any]]:
    return lambda session, expected, acknowledged=None: iter(())


def _known_ones_too(receive: Method) -> Method:
    def taken(session: Session[Any], number: int) -> bool:
        return bool(receive(session, number)) or number < session.expected

    return taken


def _some_more(allow: Method) -> Method:
    def allowed(allowance: Allowance, tuples_total: int, bytes_total: int) -> None:
        allow(allowance, tuples_total + 20, bytes_total)

    return allowed


def _tuples_only(_right: property) -> property:
    return property(lambda allowance: allowance.tuples_allowed > allowance.tuples_sent)


def _twice(right: Method) -> Callable[..., None]:
    def twice(*args: Any) -> None:
        right(*args)
        right(*args)

    return twice


def does_nothing(_right: Method) -> Callable[..., None]:
    return lambda *_: None


def _does_not_wait(_right: Method) -> Method:
    async def at_once(_self: Any) -> None:
        return

    return at_once


def _is_over(_right: property) -> property:
    return property(lambda _self: False)


def _new_ones_too(has_its_turn: Method) -> Method:
    def turn(order: ReplayOrder, peer: Any, number: int) -> bool:
        awaited = {sender for mark in order._stages for sender, _ in mark}
        return peer not in awaited or bool(has_its_turn(order, peer, number))

    return turn


def _in_any_stage(_right: Method) -> Method:
    def turn(order: ReplayOrder, peer: Any, number: int) -> bool:
        return any(number < end for mark in order._stages for sender, end in mark if sender == peer)

    return turn


def _with_closed_ones(_right: Method) -> Method:
    return lambda _order, mark: mark


def _not_in_turn(_right: Method) -> Method:
    """What a message means for event time counts when it comes, before the batches before it."""

    def at_once(reception: Reception, channel: Channel, message: Any) -> bool:
        intake = reception.path.intake
        said: bool = _right(reception, channel, message)
        if said:
            intake._queue.appendleft(intake._queue.pop())
        return said

    return at_once


LAPSES = (
    Lapse(
        "acknowledges on receipt",
        "frames count as safe when they have come",
        Statements,
        "acknowledged",
        _what_was_received,
    ),
    Lapse(
        "acknowledges before the journal",
        "frames count as safe when they are worked off",
        Channel,
        "settle",
        _safe_when_settled,
    ),
    Lapse(
        "sends before the commit",
        "frames go out before they are in the journal",
        Channel,
        "_send",
        _sent_at_once,
    ),
    Lapse(
        "forgets kept frames",
        "a next incarnation knows no frames",
        Past,
        "take",
        _without_frames,
    ),
    Lapse(
        "expects a stale number",
        "a next incarnation expects the frame before",
        Channel,
        "restore",
        _restored(_expects_less),
        crashes="all",
    ),
    Lapse(
        "expects what was received",
        "a next incarnation does not expect what was handled and not settled",
        Channel,
        "restore",
        _restored(_expects_more),
        crashes="all",
    ),
    Lapse(
        "forgets handled messages",
        "the core of a next incarnation gets messages again",
        Incoming,
        "restore",
        _restored(_forgets_handled),
        "poison",
        crashes="all",
    ),
    Lapse(
        "forgets what it settled ahead",
        "a next incarnation handles again what was settled before frames that came earlier",
        Incoming,
        "restore",
        _restored(_forgets_ahead),
        crashes="all",
    ),
    Lapse(
        "does a batch in work again",
        "a next incarnation begins batches anew",
        Incoming,
        "restore",
        _restored(_forgets_part),
        crashes="all",
    ),
    Lapse(
        "says it once",
        "nothing is repeated on a new connection",
        Session,
        "resume",
        _says_it_once,
    ),
    Lapse(
        "takes frames again",
        "what is repeated on a new connection counts once more",
        Session,
        "receive",
        _known_ones_too,
    ),
    Lapse(
        "overdraws credit",
        "some more tuples are sent than were allowed",
        Allowance,
        "allow",
        _some_more,
    ),
    Lapse(
        "returns credit twice",
        "what a batch has taken of the credit is given back twice",
        Channel,
        "batch_done",
        _twice,
    ),
    Lapse("ignores bytes", "credit in bytes is not kept to", Allowance, "open", _tuples_only),
    Lapse(
        "ends while a neighbour is dead",
        "an instance ends though its last words are not acknowledged",
        Neighbourhood,
        "all_settled",
        _does_not_wait,
        crashes="all",
    ),
    Lapse(
        "does not wait for repeats",
        "a next incarnation works off what comes, as it comes",
        ReplayOrder,
        "restore",
        does_nothing,
        "new-owner",
        crashes="all",
    ),
    Lapse(
        "takes what is new before repeats",
        "of senders that have nothing to repeat all is worked off at once",
        ReplayOrder,
        "has_its_turn",
        _new_ones_too,
        "new-owner",
        crashes="all",
    ),
    Lapse(
        "takes repeats channel by channel",
        "the order between channels is not kept",
        ReplayOrder,
        "has_its_turn",
        _in_any_stage,
        "row",
        crashes="all",
    ),
    Lapse(
        "waits for closed channels",
        "after two deaths an instance waits for frames of one that has left in between",
        ReplayOrder,
        "_of_open_channels",
        _with_closed_ones,
        "leavers",
        crashes="all",
    ),
    Lapse(
        "puts words before repeats",
        "what a predecessor says last overtakes its tuples",
        Reception,
        "_say_in_turn",
        _not_in_turn,
    ),
    Lapse(
        "is drained before repeats",
        "an instance leaves while something is to come again",
        Neighbourhood,
        "awaits_repeats",
        _is_over,
        crashes="all",
    ),
)
