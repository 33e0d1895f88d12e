"""What Spark's side and the gateway say to each other: one value per request and per reply.

A frame is a header, one of these values in MessagePack, and a body, Arrow bytes or nothing
(`anabranch.spark_bridge.wire`). Every string and list has a bound, so that a malformed or
hostile header is refused while it is decoded and no later code has to wonder.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

PROTOCOL = 1

Name = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,62}$")]
Label = Annotated[str, Meta(min_length=1, max_length=200)]
Text = Annotated[str, Meta(max_length=4000)]
Count = Annotated[int, Meta(ge=0, lt=2**62)]
PartName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
PartRows = Annotated[dict[PartName, Count], Meta(max_length=20_000)]
Attempt = tuple[Count, Label]
"""A staged part of a batch: (Spark partition, token of the attempt that sent it)."""

RowShape = Literal["auto", "list"]
"""`auto`: the bare value of a one-column row, else a dict by column name; `list`: always lists."""


class _Message(Struct, frozen=True, tag_field="kind"):
    pass


# --- a connection begins -----------------------------------------------------------------------


class Greeting(_Message, frozen=True, tag="greeting"):
    """First frame, from the gateway."""

    protocol: int
    nonce: bytes


class Hello(_Message, frozen=True, tag="hello"):
    """Answer of Spark's side: proof that it knows the token, and a challenge in return."""

    protocol: int
    proof: Annotated[bytes, Meta(max_length=64)]
    nonce: Annotated[bytes, Meta(min_length=16, max_length=64)]


class Welcome(_Message, frozen=True, tag="welcome"):
    proof: bytes


# --- feed: Spark to pipeline -------------------------------------------------------------------


class Stage(_Message, frozen=True, tag="stage"):
    """A Spark task offers its part of a batch. The body is the Arrow schema.

    Answered by `Ok`, `Skip` if the batch was committed before, or `Wait` while the pipeline is
    behind. After `Ok` follow any number of `Rows` without answers, then `Staged`.
    """

    stream: Name
    query: Label
    """Stays the same over restarts: it comes out of Spark's checkpoint."""
    run: Label
    """New at every start of the query: a newer one shuts out an older one."""
    epoch: Count
    partition: Count
    token: Label
    shape: RowShape = "auto"


class Rows(_Message, frozen=True, tag="rows"):
    """The body is one Arrow record batch of the schema given before."""


class Staged(_Message, frozen=True, tag="staged"):
    """The part is complete; `crc` is CRC-32 over all bodies. Answered once it is on disk."""

    rows: Count
    crc: Count


class Commit(_Message, frozen=True, tag="commit"):
    """Make these parts of a batch one with the stream, all or nothing, once."""

    stream: Name
    query: Label
    run: Label
    epoch: Count
    parts: Annotated[list[Attempt], Meta(max_length=20_000)]
    final: bool = False
    """The stream's input ends with this batch."""


class Abort(_Message, frozen=True, tag="abort"):
    """Forget these parts, unless they were committed."""

    query: Label
    run: Label
    epoch: Count
    parts: Annotated[list[Attempt], Meta(max_length=20_000)]


class Finish(_Message, frozen=True, tag="finish"):
    """No more input will come for this stream."""

    stream: Name


# --- collect: pipeline to Spark ----------------------------------------------------------------


class Describe(_Message, frozen=True, tag="describe"):
    stream: Name


class Oldest(_Message, frozen=True, tag="oldest"):
    """Answered by `Offsets` of the oldest rows there are. With a subscriber's name it finds
    everything that it has not acknowledged kept from now on."""

    stream: Name
    subscriber: Label | None = None


class Latest(_Message, frozen=True, tag="latest"):
    """Answered by `Offsets` of the end, at once if it differs from `known`, else after a wait."""

    stream: Name
    known: PartRows = {}
    wait_ms: Annotated[int, Meta(ge=0, le=10_000)] = 0


class Fetch(_Message, frozen=True, tag="fetch"):
    """Answered by `Block`s whose bodies are Arrow bytes: the schema, record batches, nothing."""

    stream: Name
    generation: Label
    part: PartName
    start: Count
    end: Count
    columns: Annotated[list[Label], Meta(max_length=2000)] = []


class Ack(_Message, frozen=True, tag="ack"):
    """The subscriber will not ask for rows below these again."""

    stream: Name
    subscriber: Label
    generation: Label
    parts: PartRows


class Release(_Message, frozen=True, tag="release"):
    """No client collects more results: the gateway need not wait any longer."""


class Ending(_Message, frozen=True, tag="ending"):
    """Answered, with `Wait`s meanwhile, when the pipeline has ended and all results are here."""


# --- replies -----------------------------------------------------------------------------------


class Ok(_Message, frozen=True, tag="ok"):
    rows: int = 0
    repeated: bool = False
    """The same was asked and done before."""


class Skip(_Message, frozen=True, tag="skip"):
    pass


class Wait(_Message, frozen=True, tag="wait"):
    """The gateway lives but cannot answer yet; the answer follows in a later frame."""


class Refusal(_Message, frozen=True, tag="refusal"):
    code: str
    reason: str


class Description(_Message, frozen=True, tag="description"):
    schema: Text
    generation: Label


class Offsets(_Message, frozen=True, tag="offsets"):
    generation: Label
    parts: PartRows


class Block(_Message, frozen=True, tag="block"):
    rows: int
    last: bool = False


Request = (
    Hello
    | Stage
    | Rows
    | Staged
    | Commit
    | Abort
    | Finish
    | Describe
    | Oldest
    | Latest
    | Fetch
    | Ack
    | Release
    | Ending
)
Reply = Greeting | Welcome | Ok | Skip | Wait | Refusal | Description | Offsets | Block
