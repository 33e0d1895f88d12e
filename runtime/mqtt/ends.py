"""`ab.mqtt`: both ends, distinguished by `to`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

from anabranch.runtime.mqtt.broker import Broker, Version, check_filter, parse_url
from anabranch.runtime.mqtt.payloads import READ, WRITTEN, Format, checked_format
from anabranch.runtime.mqtt.sink import MqttSink, check_sink
from anabranch.runtime.mqtt.source import MqttSource
from anabranch.runtime.values.checks import PipelineError, check_number

SPOOL_BYTES_MIN = 2**20


@overload
def mqtt(
    url: str,
    *,
    format: Format | Callable[[bytes], Any] = "json",
    qos: int = 1,
    header: Sequence[str] | None = None,
    with_topic: bool = False,
    spool_bytes: int = 64 * 2**20,
    version: Version = "3.1.1",
    client_id: str = "",
    login: str = "",
    ca_file: str = "",
    cert_file: str = "",
    key_file: str = "",
    keepalive_s: int = 30,
) -> MqttSource: ...
@overload
def mqtt(
    url: str,
    *,
    to: str | Callable[[Any], str],
    format: Format | Callable[[Any], bytes] = "json",
    qos: int = 1,
    retain: bool = False,
    version: Version = "3.1.1",
    client_id: str = "",
    login: str = "",
    ca_file: str = "",
    cert_file: str = "",
    key_file: str = "",
    keepalive_s: int = 30,
) -> MqttSink: ...
def mqtt(
    url: str,
    *,
    to: Any = None,
    format: Any = "json",
    qos: int = 1,
    header: Sequence[str] | None = None,
    with_topic: bool = False,
    spool_bytes: int = 64 * 2**20,
    retain: bool | None = None,
    **settings: Any,
) -> MqttSource | MqttSink:
    """What devices publish to `mqtt://HOST[:PORT]/TOPIC`, as a source; with `to` a sink that
    publishes to the broker at `mqtt://HOST[:PORT]`. `mqtts://` is MQTT over TLS.

    `format`: what a payload is: json, csv, msgpack, text, bytes, a function of it, and as a source
    senml. As a source: `qos` 0 or 1; `header`: names of the fields of CSV; `with_topic`: tuples are
    `ab.MqttMessage`s; `spool_bytes`: how much is taken from the broker before it is processed. A
    topic `$share/GROUP/TOPIC` is shared: several instances may read it. As a sink: `to` is a topic
    or a function that gives one for a tuple; `qos` 0, 1 or 2; `retain`: the broker keeps the last
    message of a topic. `login`: `env:NAME` or `file:PATH`, where `user:password` stands. `docs/
    mqtt.md` has the guarantees. Raises `PipelineError`, also if the package paho-mqtt is missing.
    """
    broker, topic = parse_url(url, **_known(settings))
    if to is None:
        if retain is not None:
            raise PipelineError("mqtt: retain is for a sink, which needs to=...")
        return _source(broker, topic, format, qos, header, with_topic, spool_bytes)
    if topic:
        raise PipelineError(
            f"mqtt: a sink's topic is in to=..., so the URL must end at the host, got /{topic}"
        )
    if header is not None or with_topic or spool_bytes != 64 * 2**20:
        raise PipelineError("mqtt: header, with_topic and spool_bytes are for a source")
    check_sink(to, qos, bool(retain) if retain is None else retain)
    return MqttSink(broker, to, checked_format(format, WRITTEN), qos, bool(retain))


def _known(settings: dict[str, Any]) -> dict[str, Any]:
    known = set(Broker.__dataclass_fields__) - {"host", "port", "tls"}
    if unknown := next((name for name in settings if name not in known), None):
        raise TypeError(f"mqtt() got an unexpected keyword argument {unknown!r}")
    return settings


def _source(
    broker: Broker,
    topic: str,
    format: Any,
    qos: int,
    header: Sequence[str] | None,
    with_topic: bool,
    spool_bytes: int,
) -> MqttSource:
    check_filter(topic)
    if qos == 2 and not isinstance(qos, bool):
        raise PipelineError(
            "mqtt: a source subscribes at QoS 0 or 1: at 2, a message would be handed over before "
            "the journal has it, and be lost with its process; at 1 it comes too, and repeats are "
            "recognised"
        )
    if qos not in (0, 1) or isinstance(qos, bool):
        raise PipelineError(f"mqtt: qos must be 0 or 1 for a source, got {qos!r}")
    check_number("mqtt: spool_bytes", spool_bytes, whole=True)
    if spool_bytes < SPOOL_BYTES_MIN:
        raise PipelineError(f"mqtt: spool_bytes must be at least {SPOOL_BYTES_MIN:,}")
    if header is not None and format != "csv":
        raise PipelineError("mqtt: header is for format='csv'")
    if isinstance(header, str) or not all(isinstance(n, str) for n in header or ()):
        raise PipelineError("mqtt: header must be a list of names")
    names = None if header is None else tuple(header)
    return MqttSource(
        broker, topic, checked_format(format, READ), names, bool(with_topic), qos, spool_bytes
    )
