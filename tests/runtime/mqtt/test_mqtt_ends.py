"""What is said of mistakes while a pipeline is built, and payloads in both directions."""

from __future__ import annotations

import asyncio
import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.runtime.mqtt.broker import Login, LoginError
from anabranch.runtime.mqtt.ends import mqtt
from anabranch.runtime.mqtt.payloads import BadPayload, decoder, encoder
from anabranch.runtime.mqtt.sink import MqttSink, MqttWriter
from anabranch.runtime.mqtt.source import MqttSource
from tests.runtime.mqtt.fake_broker import FakeBroker
from tests.runtime.reading import context

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "settings", "told"),
    [
        ("http://h/t", {}, "begins with mqtt:// or mqtts://"),
        ("h/t", {}, "begins with mqtt:// or mqtts://"),
        ("mqtt://h", {}, "a topic is missing"),
        ("mqtt:///t", {}, "expected a host"),
        ("mqtt://h:0/t", {}, "the port must be 1 to 65535"),
        ("mqtt://h:x/t", {}, "the port must be 1 to 65535"),
        (f"mqtt://u:{SECRET}@h/t", {}, "login='env:NAME'"),
        ("mqtt://h/a+/t", {}, "must each be a whole level"),
        ("mqtt://h/#/t", {}, "# must be the last level"),
        ("mqtt://h/$share/g", {}, "'$share/GROUP/TOPIC'"),
        ("mqtt://h/t", {"qos": 2}, "be lost with its process"),
        ("mqtt://h/t", {"qos": 3}, "qos must be 0 or 1"),
        ("mqtt://h/t", {"format": "xml"}, "format must be one of json, senml"),
        ("mqtt://h/t", {"header": ["a"]}, "header is for format='csv'"),
        ("mqtt://h/t", {"version": "4"}, "version must be '3.1.1' or '5'"),
        ("mqtt://h/t", {"login": SECRET}, "'env:NAME' or 'file:PATH'"),
        ("mqtt://h/t", {"ca_file": "x"}, "are for mqtts://"),
        ("mqtt://h/t", {"keepalive_s": 0}, "keepalive_s must be 1"),
        ("mqtt://h/t", {"spool_bytes": 1}, "at least 1,048,576"),
        ("mqtt://h/t", {"retain": True}, "needs to=..."),
        ("mqtt://h", {"to": "a/+"}, "wildcards are for subscriptions"),
        ("mqtt://h", {"to": ""}, "a topic is missing"),
        ("mqtt://h", {"to": 7}, "a topic or a function"),
        ("mqtt://h/t", {"to": "a"}, "the URL must end at the host"),
        ("mqtt://h", {"to": "a", "qos": 3}, "qos must be 0, 1 or 2"),
        ("mqtt://h", {"to": "a", "format": "senml"}, "format must be one of json, csv"),
        ("mqtt://h", {"to": "a", "with_topic": True}, "are for a source"),
    ],
)
def test_a_mistake_is_named_while_the_pipeline_is_built(
    url: str, settings: dict[str, Any], told: str
) -> None:
    with pytest.raises(ab.PipelineError) as refused:
        mqtt(url, **settings)
    assert told in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_missing_package_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ab.PipelineError, match=r"pip install 'anabranch\[mqtt\]'"):
        mqtt("mqtt://h/t")


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("mqtt://h/t", ("h", 1883, False)),
        ("mqtts://h/t", ("h", 8883, True)),
        ("mqtt://[::1]:18/t", ("::1", 18, False)),
        ("mqtt://[::1]/t", ("::1", 1883, False)),
    ],
)
def test_where_a_broker_is(url: str, place: tuple[str, int, bool]) -> None:
    broker = mqtt(url).broker
    assert (broker.host, broker.port, broker.tls) == place


def test_a_topic_is_taken_as_it_is() -> None:
    assert mqtt("mqtt://h/a/?b/#").topic == "a/?b/#"


def test_a_login_is_read_from_a_file_or_the_environment_and_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "login").write_text(f"me:{SECRET}:x\n")
    monkeypatch.setenv("PLANT", f"me:{SECRET}:x")
    for login in (f"file:{tmp_path / 'login'}", "env:PLANT"):
        source = mqtt("mqtt://h/t", login=login)
        assert source.broker.read_login() == Login("me", f"{SECRET}:x")
        assert SECRET not in repr(source)
    for login in ("file:/nowhere", "env:NOTHING"):
        with pytest.raises(LoginError):
            mqtt("mqtt://h/t", login=login).prepare()


@pytest.mark.parametrize(
    ("format", "payload", "values"),
    [
        ("json", b'{"a": [1, 2.5, null]}', [{"a": [1, 2.5, None]}]),
        ("text", "é".encode(), ["é"]),
        ("bytes", b"\xff\x00", [b"\xff\x00"]),
        ("msgpack", b"\x92\x01\xa1x", [[1, "x"]]),
        ("csv", b'1,"a\nb"\r\n2,c\r\n', [["1", "a\nb"], ["2", "c"]]),
        ("senml", b'[{"n":"x","v":1,"t":-5}]', [{"n": "x", "t": 95.0, "v": 1}]),
        (len, b"abc", [3]),
    ],
)
def test_payloads_become_tuples(format: Any, payload: bytes, values: list[Any]) -> None:
    assert decoder(format, None)(payload, 100.0) == values


def test_rows_get_the_names_of_a_header() -> None:
    decode = decoder("csv", ("a", "b"))
    assert decode(b"1,2\n3,4", 0.0) == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]
    with pytest.raises(BadPayload, match="row 2 has 1 fields, not 2"):
        decode(b"1,2\n3", 0.0)


@pytest.mark.parametrize(
    ("format", "payload", "told"),
    [
        ("json", b"", "no JSON: Expecting value"),
        ("json", b"NaN", "NaN is no number"),
        ("json", b"[" * 100_000, "nested too deeply"),
        ("text", b"\xff", "no text in UTF-8"),
        ("msgpack", b"\xc1", "no MessagePack"),
        ("msgpack", b"\x01\x02", "no MessagePack"),
        ("csv", b'"a', "no CSV"),
        ("senml", b"{}", "no SenML"),
        (int, b"x", "ValueError: invalid literal"),
    ],
)
def test_a_bad_payload_says_why(format: Any, payload: bytes, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        decoder(format, None)(payload, 0.0)


@pytest.mark.parametrize(
    ("format", "value", "payload"),
    [
        ("json", {"a": (1, 2)}, b'{"a":[1,2]}'),
        ("text", "é", "é".encode()),
        ("bytes", b"\x00", b"\x00"),
        ("msgpack", [1, "x"], b"\x92\x01\xa1x"),
        ("csv", {"a": 1, "b": "x,y"}, b'1,"x,y"'),
        (str.encode, "abc", b"abc"),
    ],
)
def test_tuples_become_payloads(format: Any, value: Any, payload: bytes) -> None:
    assert encoder(format)(value) == payload


@pytest.mark.parametrize(
    ("format", "value"),
    [("json", float("nan")), ("text", 1), ("bytes", "a"), ("csv", 1), ("msgpack", object()),
     (str.upper, 1), (str.upper, "a")],
)  # fmt: skip
def test_a_tuple_without_such_a_form_is_refused(format: Any, value: Any) -> None:
    with pytest.raises(BadPayload):
        encoder(format)(value)


# -- the writer -----------------------------------------------------------------------------------


def writer(**settings: Any) -> tuple[MqttWriter, FakeBroker]:
    broker = FakeBroker()
    sink = mqtt("mqtt://h", **settings)
    assert isinstance(sink, MqttSink)
    opened = replace(sink, link=broker).open(context())
    assert isinstance(opened, MqttWriter)
    return opened, broker


async def turns() -> None:

    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_sink_waits_for_its_broker_and_holds_few_messages() -> None:

    opened, broker = writer(to=lambda n: f"t/{n}", qos=2, retain=True)
    writing = asyncio.ensure_future(opened.write([1, 2, 3, 4]))
    await turns()
    assert broker.published == []
    broker.join()
    await turns()
    assert broker.published == [(f"t/{n}", b"%d" % n, 2, True) for n in (1, 2, 3)]
    assert not writing.done()
    broker.confirm(1)
    await turns()
    assert await writing == []
    flushing = asyncio.ensure_future(opened.flush())
    broker.confirm(2, 3)
    await turns()
    assert not flushing.done()
    broker.confirm(4)
    await asyncio.wait_for(flushing, 10)


async def test_a_tuple_without_a_topic_or_a_payload_is_a_dead_letter() -> None:
    opened, broker = writer(to=lambda t: t["to"])
    opened._started = True
    opened._link.start(opened)
    broker.join()
    dead = await opened.write([{"to": "a/+"}, {"no": 1}, {"to": 1}, {"to": "a", "x": object()}])
    assert [letter.reason.split(":")[0] for letter in dead][:3] == ["mqtt", "topic", "topic"]
    assert len(dead) == 4
    assert broker.published == []


async def test_a_message_that_the_broker_refuses_fails_the_sink() -> None:
    opened, broker = writer(to="t")
    opened._started = True
    opened._link.start(opened)
    broker.join()
    await opened.write([1])
    broker.confirm(1, refused="Not authorized")
    with pytest.raises(PermissionError, match="Not authorized"):
        await opened.flush()


async def test_at_qos_0_a_broken_connection_is_not_waited_for() -> None:

    opened, broker = writer(to="t", qos=0)
    opened._started = True
    opened._link.start(opened)
    broker.join()
    await opened.write([1])
    broker.break_off()
    await asyncio.wait_for(opened.flush(), 10)


def test_a_source_is_told_from_a_sink_by_its_target() -> None:
    assert isinstance(mqtt("mqtt://h/t"), MqttSource)
    assert isinstance(mqtt("mqtt://h", to="t"), MqttSink)


async def test_few_bytes_are_on_their_way_to_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.runtime.mqtt.sink.OPEN_BYTES_MAX", 1000)
    opened, broker = writer(to="t", format="bytes")
    opened._started = True
    opened._link.start(opened)
    broker.join()
    writing = asyncio.ensure_future(opened.write([b"x" * 2000, b"y"]))
    await turns()
    assert len(broker.published) == 1
    broker.confirm(1)
    assert await writing == []
    assert len(broker.published) == 2


async def test_a_message_above_the_limit_of_the_broker_is_a_dead_letter() -> None:
    opened, broker = writer(to="t", format="bytes")
    broker.most = 100
    opened._started = True
    opened._link.start(opened)
    broker.join()
    (letter,) = await opened.write([b"x" * 100, b"y"])
    assert letter.reason == "a message of 121 bytes is above the broker's limit of 100"
    assert len(broker.published) == 1
