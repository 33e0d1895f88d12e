"""What an agent keeps of a pipeline: a folder per version of its code.

pipelines/NAME@VERSION/
    pipeline.json    what was submitted, and what has become of it
    bundle           the code as it came, for other hosts
    files/           the same, unpacked; the working folder of the run
    state/           the run, so that it can be resumed
    report.json      of the run that has ended
    log-0, log-…     what the run has printed (see `printed`)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from anabranch.runtime.hosts.bundle import VERSION_CHARS, Bundle, encoded
from anabranch.runtime.live.hosts.printed import PrintedLog
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.disk import store
from anabranch.runtime.storage.replaced import replace_file
from anabranch.runtime.storage.state_folder import RUN

RECORD, FILES, STATE, REPORT = "pipeline.json", "files", "state", "report.json"
BUNDLE = "bundle"
RUN_BYTES = 16
UNFINISHED = ".new-"
"""Before names of folders that are being unpacked; no pipeline has such a name."""


class PipelineEnd(msgspec.Struct, frozen=True):
    """`state`: finished, stopped or failed."""

    state: str
    message: str
    at: str


class PipelineRecord(msgspec.Struct, frozen=True):
    """`begun`: a run of it has been seen at work. `ending`: how its run was ordered to end. `end`:
    None while it is to run. `owner`: as in `PipelineStatus`. `run`: by which other hosts name its
    run, the same as long as that is resumed."""

    name: str
    version: str
    module: str
    variable: str
    settings: list[str]
    submitted_at: str
    begun: bool = False
    ending: str = ""
    end: PipelineEnd | None = None
    owner: str = ""
    run: str = ""

    @property
    def id(self) -> str:
        return id_of(self.name, self.version)


def readable(name: str) -> str:
    """A name on the disk as text: it may be no UTF-8, and may have characters that a terminal
    obeys."""
    return name if name.isprintable() else ascii(name)[1:-1]


def id_of(name: str, version: str) -> str:
    return f"{name}@{version[:VERSION_CHARS]}"


class DamagedFolder(ValueError):
    """What is no folder of a pipeline, or has a record that cannot be read. `place`: the file."""

    def __init__(self, place: Path, why: str) -> None:
        super().__init__(f"{readable(str(place))}: {why}")
        self.path = place.parent if place.name == RECORD else place


class PipelineFolder:
    def __init__(self, path: Path, record: PipelineRecord) -> None:
        self.path = path
        self.record = record

    @property
    def files(self) -> Path:
        return self.path / FILES

    @property
    def state(self) -> Path:
        return self.path / STATE

    @property
    def report(self) -> Path:
        return self.path / REPORT

    @property
    def bundle(self) -> Path:
        """Not there if an earlier version has unpacked it."""
        return self.path / BUNDLE

    @property
    def is_kept(self) -> bool:
        """Whether there is a run to go on with."""
        return store().exists(self.state / RUN)

    @property
    def is_reported(self) -> bool:
        return store().exists(self.report)

    def note(self, **changes: object) -> None:
        """Return when it is on the disk. Raises `OSError`; then it is known to this process."""
        self.record = msgspec.structs.replace(self.record, **changes)
        replace_file(self.path / RECORD, msgspec.json.encode(self.record))

    @property
    def printed(self) -> PrintedLog:
        return PrintedLog(self.path)

    def remove(self) -> None:
        store().remove_folder(self.path)


def unpack(parent: Path, bundle: Bundle, version: str, owner: str = "") -> PipelineFolder:
    """A new folder, whole or not at all. Raises `OSError`."""
    code = (bundle.module, bundle.variable, bundle.settings)
    record = PipelineRecord(bundle.name, version, *code, now(), owner=owner, run=new_run())
    with unpacked_aside(parent, bundle) as aside:
        folder = PipelineFolder(aside, record)
        folder.note()
        folder.path = parent / record.id
        store().rename(aside, folder.path)
        store().sync_folder(parent)
    return folder


@contextmanager
def unpacked_aside(parent: Path, bundle: Bundle) -> Iterator[Path]:
    """A folder with the bundle and its files, to be renamed within; it is removed if that fails.
    Raises `OSError`."""
    aside = parent / f"{UNFINISHED}{clock.secret(6).hex()}"
    try:
        store().make_folder(aside / FILES, 0o700, parents=True)
        _write(aside / BUNDLE, encoded(bundle))
        for packed in bundle.files:
            path = aside / FILES / packed.path
            store().make_folder(path.parent, 0o700, parents=True)
            _write(path, packed.data)
        yield aside
    except BaseException:
        with suppress(OSError):
            store().remove_folder(aside)
        raise


def _write(path: Path, data: bytes) -> None:
    file = store().open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        file.append(data)
        file.sync()
    finally:
        file.close()


def folders_in(parent: Path) -> list[Path]:
    """What an unpacking left that was killed is removed. Raises `OSError`."""
    found = []
    for name in sorted(store().names(parent)):
        if name.startswith(UNFINISHED) and store().is_folder(parent / name):
            with suppress(OSError):  # it is left out in any case
                store().remove_folder(parent / name)
        else:
            found.append(parent / name)
    return found


def folder_at(path: Path) -> PipelineFolder:
    """Raises `DamagedFolder`."""
    try:
        if not store().is_folder(path):
            raise DamagedFolder(path, "this is not the folder of a pipeline")
        record = msgspec.json.decode(store().read(path / RECORD), type=PipelineRecord)
    except msgspec.DecodeError as error:
        raise DamagedFolder(path / RECORD, f"this is damaged: {error}") from None
    except OSError as error:
        raise DamagedFolder(path / RECORD, f"this cannot be read: {error.strerror}") from None
    if record.id != path.name:
        raise DamagedFolder(path / RECORD, f"this belongs to a folder {record.id!r}")
    folder = PipelineFolder(path, record)
    try:
        _ = folder.is_kept, folder.is_reported
    except OSError as error:
        raise DamagedFolder(folder.path, f"this cannot be read: {error.strerror}") from None
    return folder


def new_run() -> str:
    return clock.secret(RUN_BYTES).hex()


def now() -> str:
    return clock.wall_utc().isoformat(timespec="seconds")
