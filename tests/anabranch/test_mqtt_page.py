"""The example of docs/mqtt.md: its pipeline, and what its functions do."""

from __future__ import annotations

from anabranch.runtime.mqtt.sink import MqttSink
from anabranch.runtime.mqtt.source import MqttMessage, MqttSource
from tests.anabranch.test_documents import run


def test_the_example_of_the_page_reads_temperatures_and_publishes_alarms() -> None:
    names = run("docs/mqtt.md")
    value = names["celsius"](MqttMessage("plant/oven/temp", 81.5, 0.0))
    assert value == {"place": "oven", "celsius": 81.5}
    operators = names["pipeline"].operators
    assert isinstance(operators["temps"].source, MqttSource)
    sink = operators["alarms"].sink
    assert isinstance(sink, MqttSink)
    assert callable(sink.to)
    assert sink.to(value) == "alarms/oven"
