"""Files of records: what a death or a full disk leaves is cut off, and all else is told."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.runtime.ports import disk
from anabranch.runtime.storage import record_log
from anabranch.runtime.storage.extent import extent_path
from anabranch.runtime.storage.record_log import CannotSync, LogDamaged, RecordLog, read_log


def written(path: Path, *payloads: bytes, power: bool = False) -> None:
    log = RecordLog(path, power=power)
    for payload in payloads:
        log.append(payload, sync=power)
    log.close()


def read(path: Path) -> list[bytes]:
    return read_log(path, name=path.name, power=True)


def test_records_come_back_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "j"
    assert read(path) == []
    written(path, b"one", b"two")
    assert read(path) == [b"one", b"two"]
    log = RecordLog(path)
    log.replace([b"all"])
    log.append(b"more")
    log.close()
    assert read(path) == [b"all", b"more"]


def test_a_record_torn_at_any_byte_is_cut_off_and_the_log_goes_on(tmp_path: Path) -> None:
    path, extent = tmp_path / "j", extent_path(tmp_path / "j")
    written(path, b"first", power=True)
    whole, before = path.stat().st_size, extent.read_bytes()  # it follows the record
    written(path, b"second", power=True)
    data = path.read_bytes()
    for length in range(whole, len(data)):
        path.write_bytes(data[:length])
        extent.write_bytes(before)
        assert read(path) == [b"first"]
        written(path, b"third", power=True)
        assert read(path) == [b"first", b"third"]


def damaged(path: Path) -> Iterator[str]:
    """Each byte of the file has another bit, then the file ends at each byte; told what is so."""
    whole = path.read_bytes()
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1 << at % 8
        path.write_bytes(changed)
        yield f"byte {at} of {len(whole)} is another one"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        yield f"{length} bytes are left of {len(whole)}"
    path.write_bytes(whole)


def test_a_log_that_is_not_as_it_was_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j"
    written(path, b"first")
    log = RecordLog(path)
    log.replace([b"all"])
    log.append(b"more")
    log.close()
    for what in damaged(path):
        with pytest.raises(LogDamaged, match=r"^j (is|has) "):
            pytest.fail(f"{what}: {read(path)}")
    path.rename(tmp_path / "kept")
    with pytest.raises(LogDamaged, match=r"^j is gone or empty: it had 40 bytes$"):
        read(path)


@pytest.mark.parametrize("sync", [False, True])
def test_a_record_that_could_not_be_written_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: bool
) -> None:
    path = tmp_path / "j"
    log = RecordLog(path, power=sync)
    log.append(b"first", sync=sync)

    def half(fd: int, data: bytes) -> None:
        os.write(fd, data[:5])
        raise OSError(28, "No space left on device")

    def unknown(_fd: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "write_whole", half)
        with pytest.raises(OSError, match="No space left"):
            log.append(b"torn", sync=sync)
    assert path.stat().st_size == log.size
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", unknown)
        if sync:
            with pytest.raises(CannotSync, match="Input/output error"):
                log.append(b"lost", sync=True)
    log.append(b"whole", sync=sync)
    log.close()
    assert read(path) == [b"first", b"whole"]


def test_a_log_that_has_no_room_to_be_replaced_goes_on_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_log, "SHORTEN_BYTES_MIN", 10)
    path = tmp_path / "j"
    log = RecordLog(path)
    for _ in range(5):
        log.append(b"many")
    assert log.is_long

    def full(_path: Path, _data: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(record_log, "_written", full)
        log.replace([b"few"])
    assert not log.is_long
    log.append(b"more")
    assert read(path) == [*[b"many"] * 5, b"more"]
    log.replace([b"few"])
    log.close()
    assert read(path) == [b"few"]
    assert sorted(tmp_path.iterdir()) == [extent_path(path).parent, path]
