"""What an agent keeps of a run that another host has begun.

hosted/RUN/
    hosted.json      whose run it is, and which process of it was the last to connect
    bundle           the code as it came
    files/           the same, unpacked; the working folder of its processes
    state/           what outlives its processes
    alive            locked as long as there is any process of it
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from anabranch.runtime.hosts.bundle import Bundle
from anabranch.runtime.live.hosts.pipeline_folder import (
    BUNDLE,
    FILES,
    STATE,
    DamagedFolder,
    unpacked_aside,
)
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.disk import DISK, store
from anabranch.runtime.storage.replaced import replace_file

RECORD, ALIVE = "hosted.json", "alive"
FORMER_MAX = 16


class HostedRecord(msgspec.Struct, frozen=True):
    """`epoch`: of the process of the run for which there is a worker, or was. `former`: of earlier
    ones, which will not connect again. `used_at`: seconds since 1970."""

    run: str
    home: str
    version: str
    module: str
    variable: str
    settings: list[str]
    epoch: bytes = b""
    former: list[bytes] = []
    used_at: float = 0.0


class HostedFolder:
    def __init__(self, path: Path, record: HostedRecord) -> None:
        self.path = path
        self.record = record

    @property
    def files(self) -> Path:
        return self.path / FILES

    @property
    def state(self) -> Path:
        return self.path / STATE

    def note(self, **changes: object) -> None:
        """Return when it is on the disk. Raises `OSError`; then nothing is noted."""
        record = msgspec.structs.replace(self.record, **changes, used_at=clock.wall())
        replace_file(self.path / RECORD, msgspec.json.encode(record))
        self.record = record

    def note_epoch(self, epoch: bytes) -> None:
        """Raises `OSError`."""
        record = self.record
        if epoch != record.epoch:
            former = [*record.former, *filter(None, [record.epoch])][-FORMER_MAX:]
            self.note(epoch=epoch, former=former)

    def remove(self) -> None:
        """Raises `OSError`."""
        store().remove_folder(self.path)


class AliveLock:
    """Locked from before a worker begins until the last of its processes has ended: they inherit
    the open file, and the system unlocks it when none has it any more. So that also holds if their
    agent was killed meanwhile."""

    def __init__(self, folder: Path) -> None:
        """Raises `OSError`."""
        self._file = DISK.open(folder / ALIVE, os.O_CREAT | os.O_RDWR)

    @property
    def fd(self) -> int:
        return self._file.fileno()

    def is_taken(self) -> bool:
        """Whether this process has the lock now; not as long as there is a process of an earlier
        worker."""
        return self._file.lock(wait=False)

    def close(self) -> None:
        """Harmless for processes that have inherited it."""
        self._file.close()


def unpack_hosted(parent: Path, bundle: Bundle, record: HostedRecord) -> HostedFolder:
    """A new folder, whole or not at all. Raises `OSError`."""
    with unpacked_aside(parent, bundle) as aside:
        folder = HostedFolder(aside, record)
        store().make_folder(folder.state, 0o700)
        folder.note()
        folder.path = parent / record.run
        store().rename(aside, folder.path)
        store().sync_folder(parent)
    return folder


def hosted_at(path: Path) -> HostedFolder:
    """Raises `DamagedFolder`."""
    try:
        record = msgspec.json.decode(store().read(path / RECORD), type=HostedRecord)
    except msgspec.DecodeError as error:
        raise DamagedFolder(path / RECORD, f"this is damaged: {error}") from None
    except OSError as error:
        raise DamagedFolder(path / RECORD, f"this cannot be read: {error.strerror}") from None
    if record.run != path.name:
        raise DamagedFolder(path / RECORD, f"this belongs to a folder {record.run!r}")
    return HostedFolder(path, record)


def bundle_in(folder: Path) -> bytes:
    """As it came. Raises `OSError`."""
    return store().read(folder / BUNDLE)
