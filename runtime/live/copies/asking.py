"""What the agent, and a new incarnation, ask of a copy keeper."""

from __future__ import annotations

import asyncio
import os
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from anabranch.protocol.copies import CopyError, Part, Parts
from anabranch.protocol.ids import InstanceId
from anabranch.runtime.live.copies import messages
from anabranch.runtime.live.copies.stream import Answers, dialled
from anabranch.runtime.live.journal.journal import base_of, remove_journal, segment_at, whole_bytes
from anabranch.runtime.ports.disk import store
from anabranch.runtime.ports.store import File
from anabranch.runtime.storage.extent import ExtentFile


class CopyFound(NamedTuple):
    """`readable`: it can be fetched; else it may have lost its end with the host's power. `known`:
    whether a writer has ever begun it, as far as the holder knows."""

    parts: Parts
    readable: bool
    known: bool


async def fence(address: str, token: bytes, instance: InstanceId, incarnation: int) -> CopyFound:
    """From now on the holder refuses all incarnations before this one; that is on its disk when
    this returns. To be asked again at will. Raises `OSError` if the holder cannot be reached or
    refuses for now, `FencedError` if it was fenced for a later incarnation, `CopyError` if it
    refuses."""
    answers = await _ask(address, token, instance)
    with closing(answers.stream):
        answers.stream.write(messages.FENCE, incarnation)
        return _found(await answers.following())


async def fetch(
    address: str, token: bytes, instance: InstanceId, incarnation: int, into: Path
) -> CopyFound:
    """`fence`, and put the journal of the holder at this path, in place of what is there. Raises
    as `fence` does, and `CopyError` if the copy is not readable."""
    answers = await _ask(address, token, instance)
    with closing(answers.stream):
        answers.stream.write(messages.FETCH, incarnation)
        found = _found(await answers.following())
        if not found.readable:
            raise CopyError(f"the copy of {instance} may have lost its end")
        store().make_folder(into.parent, parents=True)
        remove_journal(into)
        for part in found.parts:
            await _fetch_part(answers, part, into)
        if (fields := await answers.following()) != [messages.END]:
            raise CopyError(f"more than the copy of {instance}: {fields!r:.100}")
    _note_extent(into, found.parts)
    return found


def _note_extent(journal: Path, parts: Parts) -> None:
    """A holder whose disk was full, or that died, may have half a record last, which does not
    count."""
    for part in reversed(parts):
        if part.number and (size := whole_bytes(segment_at(journal, part.number))):
            with closing(ExtentFile(journal)) as extent:
                extent.note(part.number, size)
            return


async def silent_s(address: str, token: bytes, instance: InstanceId) -> float:
    """For how long the keeper has been there and has heard nothing of a writer of this instance.
    Raises `OSError` if it cannot be reached, `CopyError` if it refuses."""
    answers = await _ask(address, token, instance)
    with closing(answers.stream):
        answers.stream.write(messages.SILENCE)
        match await answers.following():
            case [messages.SILENT, milliseconds]:
                return messages.numbers(milliseconds)[0] / 1000
            case fields:
                raise CopyError(f"not for how long a keeper has heard nothing: {fields!r:.100}")


async def forget(address: str, token: bytes, instance: InstanceId) -> None:
    """The instance has ended, or its copy is elsewhere now: the holder removes it. Raises
    `OSError` if the holder cannot be reached or refuses."""
    answers = await _ask(address, token, instance)
    with closing(answers.stream):
        answers.stream.write(messages.FORGET)
        await answers.following()


async def _ask(address: str, token: bytes, instance: InstanceId) -> Answers:
    answers = Answers()
    answers.stream = await dialled(address, token, instance, answers.heard)
    return answers


def _found(fields: list[Any]) -> CopyFound:
    match fields:
        case [messages.FOUND, list(parts), bool(readable), bool(known)]:
            return CopyFound(messages.unpack_parts(parts), readable, known)
    raise CopyError(f"not what a keeper has found: {fields!r:.100}")


async def _fetch_part(answers: Answers, part: Part, into: Path) -> None:
    path = segment_at(into, part.number) if part.number else base_of(into)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    with closing(store().open(path, flags)) as file:
        await _fill(answers, part, file)


async def _fill(answers: Answers, part: Part, file: File) -> None:
    at = 0
    while at < part.size:
        match await answers.following():
            case [messages.DATA, part.number, part.author, int(begin), bytes(data)] if (
                begin == at and 0 < len(data) <= part.size - at
            ):
                file.append(data)
                at += len(data)
                await asyncio.sleep(0)
            case fields:
                raise CopyError(f"not the rest of part {part.number}: {fields!r:.100}")
