"""The broker over which the processes of a host reach others, and are reached.

The agent writes it down in its data folder, and names the file to its processes in the variable
`FILE`. Neither has a password: that stands in the file that `login` names, which is read with each
connection.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from anabranch.runtime.mqtt.broker import Broker, LoginError, parse_url
from anabranch.runtime.mqtt.brokered import KEEPALIVE_S, KIND, BrokeredTransport, Near
from anabranch.runtime.ports.disk import store
from anabranch.runtime.ports.sockets import SOCKETS
from anabranch.runtime.storage.replaced import replace_file

FILE = "ANABRANCH_BROKER_FILE"
SETTINGS, LOGIN, NEAR = "broker.json", "broker-login", "near"
PREFIX = "anabranch"


class HostsBroker(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`url`: `mqtt://HOST[:PORT][/PREFIX]`, or `mqtts`; `login`: as in `ab.mqtt`. `host`: the name
    of this one; `near`: the folder in which its processes find each other."""

    url: str
    login: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    host: str = ""
    near: str = ""

    def parsed(self) -> tuple[Broker, str]:
        """And the prefix of all topics. Raises `PipelineError`."""
        files = {"ca_file": self.ca_file, "cert_file": self.cert_file, "key_file": self.key_file}
        broker, prefix = parse_url(self.url, login=self.login, keepalive_s=KEEPALIVE_S, **files)
        return broker, prefix.strip("/") or PREFIX


def keep_broker(folder: Path, broker: HostsBroker, told: Callable[[str], None]) -> None:
    """Have this process, and those that it begins, use it. A password in the environment is taken
    out of it, so that they do not have it there. `told`: as of `BrokeredTransport`. Raises
    `OSError`."""
    if broker.login.startswith("env:"):
        name = broker.login.removeprefix("env:")
        found = os.environ.pop(name, None)
        if found is None:
            raise LoginError(f"the environment has no variable {name!r}")
        replace_file(folder / LOGIN, found.encode())
        broker = msgspec.structs.replace(broker, login=f"file:{folder / LOGIN}")
    near = folder / NEAR
    with suppress(FileNotFoundError):
        store().remove_folder(near)  # of processes that were killed
    store().make_folder(near, 0o700)
    broker = msgspec.structs.replace(broker, near=str(near))
    replace_file(folder / SETTINGS, msgspec.json.encode(broker))
    os.environ[FILE] = str(folder / SETTINGS)
    _use(broker, told)


def use_broker() -> None:
    """Of a process that the agent has begun, or a command: if there is one. Raises `OSError`."""
    if SOCKETS.has(KIND) or not (path := os.environ.get(FILE)):
        return
    try:
        _use(msgspec.json.decode(store().read(Path(path)), type=HostsBroker))
    except (msgspec.DecodeError, ValueError) as error:
        raise OSError(0, f"cannot be read: {error}", path) from None


def _use(broker: HostsBroker, told: Callable[[str], None] | None = None) -> None:
    found, prefix = broker.parsed()
    near = Near(broker.host, Path(broker.near)) if broker.near else None
    SOCKETS.add(KIND, BrokeredTransport(found, prefix, told, near))
