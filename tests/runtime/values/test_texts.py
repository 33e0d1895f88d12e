"""Names that are no UTF-8 travel and come out as they were; errors that are none can be read."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.live.link.link import encode
from anabranch.runtime.live.link.messages import EventNote
from anabranch.runtime.values.kinds import EventKind
from anabranch.runtime.values.texts import carried, original, printable


@given(st.binary().filter(lambda name: b"\0" not in name))
def test_any_name_of_a_file_travels(name: bytes) -> None:
    path = os.fsdecode(name)
    text = carried(path)
    assert original(text.encode().decode()) == path


@pytest.mark.parametrize("path", ["/tmp/a b", "/tmp/café", "unix:0d800"])
def test_names_of_utf_8_travel_as_they_are(path: str) -> None:
    assert carried(path) == path == original(path)
    assert carried(Path(path)) == path


def test_the_text_of_an_error_may_be_any() -> None:
    note = EventNote(t=1.0, event=EventKind.NOTE, label="warning", detail="oh \ud800 é")
    said = msgspec.msgpack.decode(encode(note)[4:], type=EventNote)
    assert said == EventNote(t=1.0, event=EventKind.NOTE, label="warning", detail="oh \\ud800 é")


def test_what_is_printable_stays_as_it_is() -> None:
    note = EventNote(t=1.0, event=EventKind.NOTE, detail="é \0", label="\udce9")
    told = {"event": "note", "detail": "é \0", "label": "\\udce9"}
    kept = {"kind": "event", "t": 1.0, **told}
    assert printable(note) == kept
    assert printable({"raw": b"\xe9", "many": ["\udce9", ("a", 1)]}) == {
        "raw": b"\xe9",
        "many": ["\\udce9", ["a", 1]],
    }
