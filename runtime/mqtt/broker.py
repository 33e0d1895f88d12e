"""Where a broker is and how to get in: a value without secrets, which are read when they are used.

    mqtt://HOST[:PORT]/TOPIC      port 1883
    mqtts://HOST[:PORT]/TOPIC     TLS, port 8883

What follows the first slash is the topic as it is, `#` and `?` included.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from anabranch.runtime.values.checks import PipelineError, check_number

Version = Literal["3.1.1", "5"]
VERSIONS = ("3.1.1", "5")
PORTS = {"mqtt": 1883, "mqtts": 8883}
TOPIC_BYTES_MAX = 65535
SHARE = "$share/"


class LoginError(OSError):
    """User name and password cannot be read now. The message has neither."""


class Login(NamedTuple):
    user: str
    password: str | None


@dataclass(frozen=True)
class Broker:
    """`login`: `env:NAME` or `file:PATH`, where `user:password` stands; empty for none. The three
    files are in PEM, for `mqtts`: trusted certificates, and the client's own. `keepalive_s`:
    after so long without a message the broker gets a ping; after as long again the connection is
    closed."""

    host: str
    port: int
    tls: bool = False
    version: Version = "3.1.1"
    client_id: str = ""
    login: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    keepalive_s: int = 30

    def __post_init__(self) -> None:
        if self.version not in VERSIONS:
            raise PipelineError(f"mqtt: version must be '3.1.1' or '5', got {self.version!r}")
        check_number("mqtt: keepalive_s", self.keepalive_s, whole=True)
        if not 1 <= self.keepalive_s <= 65535:
            raise PipelineError(f"mqtt: keepalive_s must be 1 to 65535, got {self.keepalive_s}")
        if self.login and self.login.partition(":")[0] not in ("env", "file"):
            raise PipelineError(
                "mqtt: login must say where 'user:password' stands, 'env:NAME' or 'file:PATH'"
            )  # and not what was given, which may be a password
        if (self.ca_file or self.cert_file or self.key_file) and not self.tls:
            raise PipelineError("mqtt: ca_file, cert_file and key_file are for mqtts://")
        if self.key_file and not self.cert_file:
            raise PipelineError("mqtt: key_file needs cert_file")

    @property
    def name(self) -> str:
        """For people: the address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'mqtts' if self.tls else 'mqtt'}://{host}:{self.port}"

    def check_files(self) -> None:
        """Raises an `OSError` that names what cannot be read. The password is read, too."""
        for path in (self.ca_file, self.cert_file, self.key_file):
            if path:
                open(path, "rb").close()
        self.read_login()

    def read_login(self) -> Login | None:
        """Anew with each connection, so that a password may change. Raises `LoginError`."""
        kind, _, where = self.login.partition(":")
        if not kind:
            return None
        if kind == "env":
            if (text := os.environ.get(where)) is None:
                raise LoginError(f"mqtt: login: the environment has no variable {where!r}")
        else:
            try:
                text = Path(where).read_text("utf-8")
            except (OSError, UnicodeDecodeError) as error:
                why = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
                raise LoginError(f"mqtt: login: cannot read {where!r}: {why}") from None
        user, colon, password = text.strip("\r\n").partition(":")
        if not user:
            raise LoginError(f"mqtt: login: {kind}:{where} must have 'user:password'")
        return Login(user, password if colon else None)


def parse_url(url: str, **settings: Any) -> tuple[Broker, str]:
    """The broker, and the topic behind it, which may be empty. Raises `PipelineError`."""
    _need_package()
    if not isinstance(url, str):
        raise PipelineError(f"mqtt: expected a URL such as 'mqtt://host/topic', got {url!r}")
    scheme, colon, rest = url.partition("://")
    if not colon or scheme not in PORTS:
        shown = f"{scheme}://…" if colon else "one without a scheme"
        raise PipelineError(
            f"mqtt: expected a URL that begins with mqtt:// or mqtts://, got {shown}"
        )
    place, _, topic = rest.partition("/")
    if "@" in place:
        raise PipelineError(
            "mqtt: a URL with a password would be shown in graphs and logs; say where "
            "'user:password' stands: login='env:NAME' or login='file:PATH'"
        )
    host, port = _host_and_port(place, PORTS[scheme])
    return Broker(host, port, scheme == "mqtts", **settings), topic


def check_filter(topic: str) -> None:
    """Raise `PipelineError` unless a client may subscribe to this."""
    _check_topic(topic)
    inner = topic
    if topic.startswith(SHARE):
        group, slash, inner = topic.removeprefix(SHARE).partition("/")
        if not group or not slash or not inner or set(group) & set("+#"):
            raise PipelineError(
                f"mqtt: a shared subscription is '$share/GROUP/TOPIC', got {topic!r}"
            )
    levels = inner.split("/")
    for i, level in enumerate(levels):
        if ("+" in level and level != "+") or ("#" in level and level != "#"):
            raise PipelineError(
                f"mqtt: in {topic!r}, + and # must each be a whole level, as in 'plant/+/temp'"
            )
        if level == "#" and i + 1 < len(levels):
            raise PipelineError(f"mqtt: in {topic!r}, # must be the last level")


def check_target(topic: str) -> None:
    """Raise `PipelineError` unless a message may be published to this topic."""
    _check_topic(topic)
    if set(topic) & set("+#"):
        raise PipelineError(f"mqtt: cannot publish to {topic!r}: wildcards are for subscriptions")


def _check_topic(topic: str) -> None:
    if not topic:
        raise PipelineError("mqtt: a topic is missing, as in 'mqtt://host/plant/+/temp'")
    if "\0" in topic or len(topic.encode("utf-8", "surrogatepass")) > TOPIC_BYTES_MAX:
        raise PipelineError(
            f"mqtt: a topic has at most {TOPIC_BYTES_MAX:,} bytes and no zero character"
        )


def _host_and_port(place: str, port: int) -> tuple[str, int]:
    host, colon, text = place.rpartition(":")
    if place.startswith("["):  # an address of IPv6
        host, _, text = place[1:].partition("]")
        colon, text = (text[:1], text[1:]) if text else ("", "")
    elif not colon:
        host = place
    if colon:
        if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
            raise PipelineError(f"mqtt: the port must be 1 to 65535, got {text!r}")
        port = int(text)
    if not host or any(c.isspace() for c in host):
        raise PipelineError(f"mqtt: expected a host, as in 'mqtt://host/topic', got {place!r}")
    return host, port


def _need_package() -> None:
    if importlib.util.find_spec("paho") is None:
        raise PipelineError(
            "mqtt: this needs the package paho-mqtt, which is not installed: "
            "pip install 'anabranch[mqtt]'"
        )
