"""The data folder of an agent: what outlives it.

lock            held by the agent that uses the folder
host.json       the key of the host, and its last incarnation
token           a secret, for commands of the same user
"""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from anabranch.runtime.hosts.host import KEY_BYTES
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.disk import store
from anabranch.runtime.ports.store import File
from anabranch.runtime.storage.replaced import replace_file

LOCK, HOST, TOKEN = "lock", "host.json", "token"
TOKEN_BYTES = 32


class FolderError(ValueError):
    """The folder cannot be used. The message says why, and what can be done."""


class FolderFull(FolderError):
    """It may have room later."""


class HostFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
    incarnation: Annotated[int, Meta(ge=0, lt=2**61)]


class DataFolder:
    """`incarnation`: higher with each opening."""

    def __init__(self, path: Path, lock: File, key: bytes, incarnation: int, secret: bytes) -> None:
        self.path = path
        self.key = key
        self.incarnation = incarnation
        self.secret = secret
        self._lock = lock

    @property
    def token_file(self) -> Path:
        return self.path / TOKEN

    def keep(self, incarnation: int) -> None:
        """Return when it is on the disk."""
        self.incarnation = incarnation
        known = HostFile(self.key, incarnation)
        replace_file(self.path / HOST, msgspec.json.encode(known))

    def close(self) -> None:
        self._lock.close()


def open_folder(path: Path) -> DataFolder:
    """Made if it is not there. Raises `FolderError`."""
    try:
        store().make_folder(path, 0o700, parents=True)
        lock = _locked(path)
        try:
            known = _known(path)
            folder = DataFolder(path, lock, known.key, known.incarnation, _secret(path))
            folder.keep(known.incarnation + 1)
        except BaseException:
            lock.close()
            raise
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise (FolderFull if is_full else FolderError)(
            f"data folder {str(path)!r} cannot be used: {error.strerror}; "
            f"{'make room there, or ' if is_full else ''}name another one with --data"
        ) from None
    return folder


NEW_TOKEN = "remove it, so that the agent makes another one when it starts again"


def secret_in(path: Path, remedy: str = NEW_TOKEN) -> bytes:
    """Of a file with a token, which only its user may read. Raises `FolderError`, `OSError`."""
    status = store().status(path)
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise FolderError(
            f"{path} can be read by other users, so it is no secret any more; {remedy}"
        )
    text = store().read(path).decode("ascii", "replace").strip()
    if not re.fullmatch(rf"[0-9a-f]{{{2 * TOKEN_BYTES}}}", text):
        raise FolderError(f"{path} holds no token of an agent; {remedy}")
    return bytes.fromhex(text)


def _locked(path: Path) -> File:
    lock = store().open(path / LOCK, os.O_CREAT | os.O_RDWR)
    if not lock.lock(wait=False):
        lock.close()
        raise FolderError(
            f"data folder {str(path)!r} is in use by another agent; two agents on one machine need "
            "a folder and a name each"
        )
    return lock


def _known(path: Path) -> HostFile:
    if not store().exists(path / HOST):
        return HostFile(clock.secret(KEY_BYTES), 0)
    try:
        known = msgspec.json.decode(store().read(path / HOST), type=HostFile)
    except msgspec.DecodeError as error:
        raise FolderError(
            f"{path / HOST} is damaged: {error}; remove it, and the host is a new one to others"
        ) from None
    return known


def _secret(path: Path) -> bytes:
    token = path / TOKEN
    with suppress(FileNotFoundError):
        return secret_in(token)
    replace_file(token, clock.secret(TOKEN_BYTES).hex().encode() + b"\n")
    return secret_in(token)
