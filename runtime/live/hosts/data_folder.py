"""The data folder of an agent: what outlives it.

lock            held by the agent that uses the folder
host.json       the key of the host, and its last incarnation
token           a secret, for commands of the same user
drained         there while the host is drained

A file that is damaged is put aside, as `host.json.damaged`, and made anew: a host without an
operator has to start by itself after a loss of power.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from anabranch.runtime.hosts.host import KEY_BYTES
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.disk import store
from anabranch.runtime.ports.store import File
from anabranch.runtime.storage.replaced import replace_file

LOCK, HOST, TOKEN, DRAINED = "lock", "host.json", "token", "drained"
TOKEN_BYTES = 32
DAMAGED = ".damaged"
ASIDE_MAX = 100
"""So many damaged files are kept; after that, the last one is replaced."""


class FolderError(ValueError):
    """The folder cannot be used. The message says why, and what can be done."""


class FolderFull(FolderError):
    """It may have room later."""


class HostFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
    incarnation: Annotated[int, Meta(ge=0, lt=2**61)]


class DataFolder:
    """`incarnation`: higher with each opening. `damaged`: what was put aside, in words."""

    def __init__(self, path: Path, lock: File, key: bytes, incarnation: int, secret: bytes) -> None:
        self.path = path
        self.damaged: list[str] = []
        self.key = key
        self.incarnation = incarnation
        self.secret = secret
        self._lock = lock

    @property
    def token_file(self) -> Path:
        return self.path / TOKEN

    @property
    def is_drained(self) -> bool:
        """Raises `OSError`."""
        return store().exists(self.path / DRAINED)

    def keep_drained(self, *, drained: bool) -> None:
        """Return when it is on the disk. Raises `OSError`."""
        if drained:
            replace_file(self.path / DRAINED, b"")
        else:
            store().remove(self.path / DRAINED)
            store().sync_folder(self.path)

    def keep(self, incarnation: int) -> None:
        """Return when it is on the disk."""
        self.incarnation = incarnation
        known = HostFile(self.key, incarnation)
        replace_file(self.path / HOST, msgspec.json.encode(known))

    def close(self) -> None:
        self._lock.close()


def open_folder(path: Path) -> DataFolder:
    """Made if it is not there. Raises `FolderError`."""
    aside: list[str] = []
    try:
        store().make_folder(path, 0o700, parents=True)
        lock = _locked(path, aside)
        try:
            known = _known(path, aside)
            secret = _secret(path, aside)
            folder = DataFolder(path, lock, known.key, known.incarnation, secret)
            folder.damaged = aside
            folder.keep(known.incarnation + 1)
        except BaseException:
            lock.close()
            raise
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        named = error.filename and str(error.filename) != str(path)
        raise (FolderFull if is_full else FolderError)(
            f"data folder {str(path)!r} cannot be used: {error.strerror}"
            f"{f' ({Path(error.filename).name})' if named else ''}; "
            f"{'make room there, or ' if is_full else ''}name another one with --data"
        ) from None
    return folder


NEW_TOKEN = "remove it, so that the agent makes another one when it starts again"


def secret_in(path: Path, remedy: str = NEW_TOKEN) -> bytes:
    """Of a file with a token, which only its user may read. Raises `FolderError`, `OSError`."""
    _refuse_open_to_others(path, remedy)
    if (secret := _token_in(path)) is None:
        raise FolderError(f"{path} holds no token of an agent; {remedy}")
    return secret


def _refuse_open_to_others(path: Path, remedy: str) -> None:
    status = store().status(path)
    if stat.S_ISREG(status.st_mode) and stat.S_IMODE(status.st_mode) & 0o077:
        raise FolderError(
            f"{path} can be read by other users, so it is no secret any more; {remedy}"
        )


def _token_in(path: Path) -> bytes | None:
    """Raises `OSError`."""
    text = store().read(path).decode("ascii", "replace").strip()
    return bytes.fromhex(text) if re.fullmatch(rf"[0-9a-f]{{{2 * TOKEN_BYTES}}}", text) else None


def _locked(path: Path, aside: list[str]) -> File:
    try:
        lock = store().open(path / LOCK, os.O_CREAT | os.O_RDWR)
    except IsADirectoryError as error:
        _put_aside(path / LOCK, str(error.strerror), "", aside)
        lock = store().open(path / LOCK, os.O_CREAT | os.O_RDWR)
    if not lock.lock(wait=False):
        lock.close()
        raise FolderError(
            f"data folder {str(path)!r} is in use by another agent; two agents on one machine need "
            "a folder and a name each"
        )
    return lock


def _known(path: Path, aside: list[str]) -> HostFile:
    if store().exists(path / HOST):
        try:
            return msgspec.json.decode(store().read(path / HOST), type=HostFile)
        except msgspec.DecodeError as error:
            why = str(error)
        except OSError as error:
            why = str(error.strerror)
        _put_aside(path / HOST, why, "the host is a new one to others", aside)
    return HostFile(clock.secret(KEY_BYTES), 0)


def _secret(path: Path, aside: list[str]) -> bytes:
    token = path / TOKEN
    if store().exists(token):
        _refuse_open_to_others(token, NEW_TOKEN)
        try:
            secret, why = _token_in(token), "this is no token of an agent"
        except OSError as error:
            secret, why = None, str(error.strerror)
        if secret is not None:
            return secret
        _put_aside(token, why, "copies of the former token are worth nothing any more", aside)
    replace_file(token, clock.secret(TOKEN_BYTES).hex().encode() + b"\n")
    return secret_in(token)


def _put_aside(path: Path, why: str, means: str, told: list[str]) -> None:
    """Under a name that is free. Raises `OSError`."""
    for number in range(ASIDE_MAX):
        aside = path.with_name(f"{path.name}{DAMAGED}{f'-{number}' if number else ''}")
        if not store().exists(aside):
            break
    store().rename(path, aside)
    told.append(f"{path} is damaged: {why}; it is {aside.name} now{means and f', and {means}'}")
