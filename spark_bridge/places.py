"""Where a run keeps what its gateway and its instances share, and how Spark's side finds both.

STATE/gateway.json               address and token, readable by the owner only; once the gateway has
                                 closed, whether the pipeline had ended by then
STATE/lock                       held while a gateway serves this folder
STATE/feed/journal               what was committed, fsynced record by record
STATE/feed/incoming/             parts under way, worthless after a restart
STATE/feed/parts/QUERY/EPOCH/PART/NNNNN.spool
STATE/collect/STREAM/            results, one log part per sink instance
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.runtime.ports.disk import store
from anabranch.runtime.storage.replaced import replace_file
from anabranch.spark_bridge.durable import sealed, unsealed

GATEWAY_FILE = "gateway.json"


class PlaceUnknown(ValueError):
    """It was not said, or cannot be found out, where the gateway is."""


class RunEnded(PlaceUnknown):
    """The gateway of this folder has closed. `complete`: the pipeline had ended."""

    def __init__(self, path: Path, complete: bool) -> None:
        how = "has ended" if complete else "was stopped or has failed"
        super().__init__(f"the run of {path} {how}: begin it again, or resume it")
        self.complete = complete


def state_dir(run_dir: str | Path, state: str | Path | None = None) -> Path:
    """The folder which the gateway and the ends of a run share.

    `state` is what the user gave to keep it beyond one run; by default it lies in the run's own.
    """
    return Path(state) if state is not None else Path(run_dir) / "spark"


@dataclass(frozen=True, slots=True)
class Place:
    """A gateway's addresses (`host:port`, tried in order) and the token of its run.

    `file`: where both were read, to be read again if the gateway came back elsewhere.
    """

    addresses: tuple[str, ...]
    token: str
    file: str | None = None

    @classmethod
    def at(cls, addresses: str, token: str) -> Place:
        """From text such as `127.0.0.1:7700,127.0.0.1:7701`; raises `PlaceUnknown`."""
        found = tuple(a.strip() for a in addresses.split(",") if a.strip())
        for address in found:
            split_address(address)
        if not found:
            raise PlaceUnknown("no gateway address given; expected host:port")
        return cls(found, token)

    @classmethod
    def of_run(cls, run: str | Path) -> Place:
        """From the run's folder, its state folder, or the gateway file itself."""
        tried = [Path(run) / "spark" / GATEWAY_FILE, Path(run) / GATEWAY_FILE, Path(run)]
        for path in tried:
            if store().is_file(path):
                return _read(path)
        raise PlaceUnknown(
            f"no gateway has written its address in {run}: is the pipeline running, "
            "and does it have an ab.spark.feed or ab.spark.collect?"
        )

    def check_ended(self) -> None:
        """Raises `RunEnded` if the gateway has said that it closes."""
        if self.file is not None:
            try:
                _read(Path(self.file))
            except RunEnded:
                raise
            except PlaceUnknown:
                return

    def again(self) -> Place:
        """The place as it is now; as it was if that cannot be read here."""
        if self.file is None:
            return self
        try:
            return _read(Path(self.file))
        except PlaceUnknown:
            return self


def split_address(address: str) -> tuple[str, int]:
    """`host:port` or `[v6]:port` as (host, port); raises `PlaceUnknown`."""
    host, colon, port = address.removeprefix("tcp:").rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise PlaceUnknown(f"gateway address {address!r}: expected host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def write_place(folder: Path, address: str, token: str) -> Path:
    """Tell where the gateway is, to this user only and never half-written."""
    return _write(folder, {"address": address, "token": token})


def keep_place(folder: Path, address: str, token: str) -> bool:
    """Write the file again if it is gone, as by a cleaner of temporary files; whether it was."""
    if store().exists(folder / GATEWAY_FILE):
        return False
    write_place(folder, address, token)
    return True


def write_ended(folder: Path, *, complete: bool) -> None:
    """Say there instead that the gateway has closed, for requests that come later."""
    _write(folder, {"ended": complete})


def forget_ended(folder: Path) -> None:
    """A run begins in a folder in which another one has ended."""
    path = folder / GATEWAY_FILE
    try:
        _read(path)
    except RunEnded:
        store().remove(path)
    except PlaceUnknown:
        return


def _write(folder: Path, found: dict[str, Any]) -> Path:
    path = folder / GATEWAY_FILE
    replace_file(path, sealed(found))
    return path


def _read(path: Path) -> Place:
    try:
        found = unsealed(path)
        if "ended" in found:
            raise RunEnded(path.parent, bool(found["ended"]))
        return Place((str(found["address"]),), str(found["token"]), str(path.absolute()))
    except RunEnded:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PlaceUnknown(f"{path} does not have a gateway's address ({error})") from None
