"""The settings of an agent: from a file, from the environment, from options; the later counts.

A setting keeps the place that it comes from, so that a wrong one is reported with it.
"""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from anabranch.runtime.hosts.host import (
    HOST_BYTES_MAX,
    LABELS_MAX,
    NAME_CHARS_MAX,
    Address,
    Cores,
    HostInfo,
    Labels,
    MemoryMb,
    Name,
    Word,
)
from anabranch.runtime.mqtt.broker import check_target
from anabranch.runtime.mqtt.hosts_broker import HostsBroker
from anabranch.runtime.values.checks import PipelineError
from anabranch.runtime.values.hints import hint

PORT = 7433
BIND = f"127.0.0.1:{PORT}"
SEEDS_MAX = 64
BROKERED = "mqtt:"
AT_BROKER = "/agent"
"""What an agent's address at the broker ends with."""
THROUGH_BROKER = "broker"
"""In the place of an address: where others reach a host that can only dial out."""
WARM_MAX = 64
NO_TLS = (
    "other machines are reached with certificates only; `anabranch ca init` and "
    "`anabranch ca issue NAME --address HOST` make them, --tls DIR names the folder"
)


class ConfigError(ValueError):
    """The message has the place, what was expected, and what to do."""


class Given(NamedTuple):
    """`place`: where the user has set it."""

    value: Any
    place: str


class ProviderConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What opens and closes hosts for pipelines that are submitted here. `kind`: `local`, further
    agents on this machine; `command`, what the user has written in `open` and `close`; `fixed`,
    none. `name`: that of a host begins so, and ends with its number. `hosts_max`: of them, at most.
    `boot_s`: for a host to be there. `cores`, `memory_mb`: that each offers; of the user's commands
    they say so themselves."""

    kind: Literal["fixed", "local", "command"]
    name: Annotated[str, Meta(pattern=r"\A([A-Za-z0-9][A-Za-z0-9._-]{0,40})?\Z")] = ""
    hosts_max: Annotated[int, Meta(ge=0, le=100)] = 4
    boot_s: Annotated[float, Meta(ge=1, le=86_400)] = 60.0
    cores: Cores = 1
    memory_mb: MemoryMb = 1024
    open: list[str] = []
    close: list[str] = []


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`data`: the folder in which the agent keeps what outlives it. `warm`: idle processes that
    each of its runs keeps ready. `tls`: the folder of its certificate; "" for none. `mdns`: find
    other agents on the LAN, and be found. `broker`: through which hosts are reached that can only
    dial out; with a login and files as in `ab.mqtt`."""

    name: str
    region: str
    labels: dict[str, str]
    cores: int
    memory_mb: int
    bind: str
    advertise: str
    seeds: list[str]
    data: str
    warm: int
    log: Literal["plain", "json"]
    tls: str = ""
    mdns: bool = False
    provider: ProviderConfig | None = None
    broker: str = ""
    broker_login: str = ""
    broker_ca: str = ""
    broker_cert: str = ""
    broker_key: str = ""

    @property
    def hosts_broker(self) -> HostsBroker | None:
        if not self.broker:
            return None
        files = self.broker_ca, self.broker_cert, self.broker_key
        return HostsBroker(self.broker, self.broker_login, *files, self.name)


@dataclass(frozen=True, slots=True)
class Setting:
    """`read`: a text, as of the environment, as a value."""

    kind: Any
    expected: str
    read: Callable[[str], Any] = str


def labels_of(texts: Iterable[str]) -> dict[str, str]:
    """Of `KEY=VALUE` each. Raises `ValueError`."""
    labels = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key.strip() and equals):
            raise ValueError(text)
        labels[key.strip()] = value.strip()
    return labels


def _several(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


_WORD = f"a text of at most {NAME_CHARS_MAX} characters that can be shown"
_ADDRESS = f"HOST:PORT, such as {BIND}"
_PATH = Annotated[str, Meta(pattern=r"\A[^\x00\ud800-\udfff]+\Z")]
_TEXT = Annotated[str, Meta(min_length=1, max_length=1024)]
_TRUTH = {"true": True, "1": True, "false": False, "0": False}
_ANYWHERE = ("0.0.0.0:", "[::]:")
SETTINGS: dict[str, Setting] = {
    "name": Setting(Name, f"letters, digits, '.', '_' and '-', at most {NAME_CHARS_MAX}"),
    "region": Setting(Word, _WORD),
    "labels": Setting(
        Labels,
        f"at most {LABELS_MAX} texts by name, such as camera=north, each {_WORD}",
        lambda text: labels_of(_several(text)),
    ),
    "cores": Setting(Cores, "a whole number from 1 on", int),
    "memory_mb": Setting(MemoryMb, "a whole number from 1 on", int),
    "bind": Setting(Address, _ADDRESS),
    "advertise": Setting(Address, _ADDRESS),
    "seeds": Setting(
        Annotated[list[Address], Meta(max_length=SEEDS_MAX)],
        f"at most {SEEDS_MAX} addresses, each {_ADDRESS}",
        _several,
    ),
    "data": Setting(_PATH, "the path of a folder, in UTF-8"),
    "warm": Setting(Annotated[int, Meta(ge=0, le=WARM_MAX)], f"a number from 0 to {WARM_MAX}", int),
    "tls": Setting(_PATH, "the path of a folder, in UTF-8"),
    "mdns": Setting(bool, "true or false", lambda text: _TRUTH.get(text.lower(), text)),
    "broker": Setting(_TEXT, "mqtt://HOST[:PORT][/PREFIX], or mqtts://"),
    "broker_login": Setting(_TEXT, "env:NAME or file:PATH, where 'user:password' stands"),
    "broker_ca": Setting(_PATH, "the path of a file, in UTF-8"),
    "broker_cert": Setting(_PATH, "the path of a file, in UTF-8"),
    "broker_key": Setting(_PATH, "the path of a file, in UTF-8"),
    "log": Setting(Literal["plain", "json"], "plain or json"),
    "provider": Setting(dict, "a table with kind = fixed, local or command"),
}
IN_FILE_ONLY = "provider"
ENVIRONMENT = {name: f"ANABRANCH_{name.upper()}" for name in SETTINGS if name != IN_FILE_ONLY}


def of_file(text: str, file: str) -> dict[str, Given]:
    """Settings in the text of a TOML file. Raises `ConfigError`."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: no TOML: {error}") from None
    for key in found:
        if key not in SETTINGS:
            place = _place(text, file, key)
            raise ConfigError(f"{place}: no setting {key!r}; {hint(key, SETTINGS)}")
    return {key: Given(value, _place(text, file, key)) for key, value in found.items()}


def of_environment(environment: Mapping[str, str]) -> dict[str, Given]:
    """Raises `ConfigError`."""
    given = {}
    for name, variable in ENVIRONMENT.items():
        if variable in environment:
            given[name] = Given(_read(name, environment[variable], variable), variable)
    return given


def _read(name: str, text: str, place: str) -> Any:
    try:
        return SETTINGS[name].read(text)
    except ValueError:
        raise _wrong(name, text, place) from None


def config_of(given: Mapping[str, Given], usual: Mapping[str, Any]) -> AgentConfig:
    """`usual`: what is taken where nothing is given. Raises `ConfigError`."""
    values = dict(usual)
    for name, (value, place) in given.items():
        if name == "advertise" and value == THROUGH_BROKER:
            values[name] = value
            continue
        try:
            values[name] = msgspec.convert(value, SETTINGS[name].kind)
        except msgspec.ValidationError:
            raise _wrong(name, value, place) from None
    if "provider" in given:
        values["provider"] = _provider(*given["provider"], tls=bool(values.get("tls")))
    values.setdefault("advertise", values["bind"])
    if values["advertise"] == THROUGH_BROKER:
        values["advertise"] = f"{BROKERED}{values['name']}{AT_BROKER}"
    config = AgentConfig(**values)
    _check_broker(config, given)
    for name in ("bind", "advertise", "seeds"):
        addresses = values[name] if name == "seeds" else [values[name]]
        place = given[name].place if name in given else "the settings"
        for address in addresses:
            if is_brokered(address):
                continue
            if not config.tls and not is_loopback(address):
                raise ConfigError(f"{_whole(name, place)}: {address}: {NO_TLS}")
            if name in given and name != "bind" and has_no_port(address):
                raise ConfigError(f"{_whole(name, place)}: {address}: expected a port above 0")
    if config.advertise.startswith(_ANYWHERE):
        raise ConfigError(
            f"the agent listens at {config.advertise}, which is no address at which others reach "
            "it; give one with --advertise HOST:PORT"
        )
    host = host_of(config, config.advertise, bytes(8), 2**40, "0.0.0")
    if (size := len(msgspec.msgpack.encode(host))) > HOST_BYTES_MAX:
        raise ConfigError(
            f"name, region, address and labels take {size} bytes together, at most "
            f"{HOST_BYTES_MAX} are told to other hosts; shorten the labels"
        )
    return config


def _provider(told: Any, place: str, *, tls: bool) -> ProviderConfig:
    """Raises `ConfigError`."""
    try:
        found = msgspec.convert(told, ProviderConfig)
    except msgspec.ValidationError as error:
        unknown = [key for key in told if key not in ProviderConfig.__struct_fields__]
        if unknown:
            way = hint(unknown[0], ProviderConfig.__struct_fields__)
            raise ConfigError(f"{place}: provider has no setting {unknown[0]!r}; {way}") from None
        raise ConfigError(f"{place}: provider: {error}") from None
    if found.kind == "command" and not (found.open and found.close):
        told = "expected both commands, as in open = ['ours/open', '{name}', '{seed}']"
        raise ConfigError(f"{place}: provider: {told}")
    if found.kind != "command" and (found.open or found.close):
        raise ConfigError(f"{place}: provider: open and close are of kind = 'command'")
    if found.kind == "local" and tls:
        raise ConfigError(
            f"{place}: provider: hosts of kind 'local' have no certificates of their own, so they "
            "are for agents without --tls; take kind = 'command' with certificates made before"
        )
    return found


def _check_broker(config: AgentConfig, given: Mapping[str, Given]) -> None:
    """Raises `ConfigError`."""

    def wrong(name: str, why: str) -> ConfigError:
        place = given[name].place if name in given else "the settings"
        return ConfigError(f"{_whole(name, place)}: {why}")

    if is_brokered(config.bind):
        raise wrong("bind", f"expected {_ADDRESS}; got {config.bind!r}")
    if (broker := config.hosts_broker) is None:
        for name in ("advertise", "seeds", *(n for n in SETTINGS if n.startswith("broker_"))):
            values = getattr(config, name)
            for value in values if name == "seeds" else [values]:
                if value and (name.startswith("broker_") or is_brokered(value)):
                    raise wrong(name, "needs a broker: --broker mqtts://HOST")
        return
    try:
        found, prefix = broker.parsed()
        check_target(f"{prefix}/x")
    except PipelineError as error:
        raise wrong("broker", str(error)) from None
    if not config.tls and not is_loopback(f"{found.host}:{found.port}"):
        raise wrong(
            "broker",
            f"{found.name}: without certificates the broker must be on this "
            f"machine, since everyone who may use it could take part; {NO_TLS}",
        )
    if is_brokered(config.advertise) and config.mdns:
        raise wrong("mdns", "a host that is reached through a broker cannot be found on a LAN")


def host_of(
    config: AgentConfig,
    address: str,
    key: bytes,
    incarnation: int,
    version: str,
    *,
    drained: bool = False,
) -> HostInfo:
    """What the agent states of its host."""
    return HostInfo(
        name=config.name,
        key=key,
        incarnation=incarnation,
        address=address,
        region=config.region,
        labels=config.labels,
        cores=config.cores,
        memory_mb=config.memory_mb,
        version=version,
        drained=drained,
    )


def host_in(address: str) -> str:
    """Of HOST:PORT, or the name in `mqtt:NAME/PLACE`."""
    if is_brokered(address):
        return address.removeprefix(BROKERED).partition("/")[0]
    return address.rpartition(":")[0].strip("[]")


def is_brokered(address: str) -> bool:
    """Whether it is one at the broker, since the host can only dial out."""
    return address.startswith(BROKERED) and "/" in address


def is_loopback(address: str) -> bool:
    host = host_in(address)
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def stream_address(address: str) -> str:
    """For a transport."""
    return address if is_brokered(address) else f"tcp:{address}"


def instances_at(address: str) -> str:
    """Of an agent: where instances on its host listen, without what tells them apart."""
    if is_brokered(address):
        return f"{BROKERED}{host_in(address)}"
    return host_in(address)


def has_no_port(address: str) -> bool:
    """Whether it may be listened at, and not be reached."""
    return not is_brokered(address) and int(address.rpartition(":")[2]) == 0


def with_port(text: str, port: int = PORT) -> str:
    """Of an agent that is asked, the usual port if none is given. Raises `ConfigError`."""
    try:
        alone = ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        address = text if ":" in text or is_brokered(text) else f"{text}:{port}"
    else:
        address = f"[{alone}]:{port}" if alone.version == 6 else f"{alone}:{port}"
    with suppress(msgspec.ValidationError):
        if not has_no_port(msgspec.convert(address, Address)):
            return address
    raise ConfigError(f"expected HOST[:PORT], such as 127.0.0.1:{port}; got {text!r}")


def _place(text: str, file: str, key: str) -> str:
    """With the number of the line in which the key is set, or its table begins."""
    named = re.compile(rf"""\s*(?:\[\s*)?["']?{re.escape(key)}["']?\s*[\].=]""")
    for number, line in enumerate(text.splitlines(), 1):
        if named.match(line):
            return f"{file}:{number}"
    return file


def _whole(name: str, place: str) -> str:
    """With the name of the setting, unless the place has it."""
    said = place.lower().replace("-", "_")
    return place if name.removesuffix("s") in said else f"{place}: {name}"


def _wrong(name: str, value: Any, place: str) -> ConfigError:
    return ConfigError(f"{_whole(name, place)}: expected {SETTINGS[name].expected}; got {value!r}")
