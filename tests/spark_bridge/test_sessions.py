"""Where `--on spark=MASTER` leads to, and what is said where nothing is."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

import anabranch as ab
from anabranch.spark_bridge import sessions
from anabranch.spark_bridge.errors import SparkUnavailable
from anabranch.spark_bridge.sessions import is_connect, master_of, session_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_may_be_named_with_its_master() -> None:
    named = [master_of("spark"), master_of("spark", "local[2]"), master_of("spark=sc://host:1")]
    assert named == ["local[*]", "local[2]", "sc://host:1"]
    for text in ("spark=", "cores", "", "sparks=local"):
        with pytest.raises(ab.PipelineError, match="expected spark, or spark=MASTER"):
            master_of(text)


def test_packages_of_spark_connect_that_are_missing_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "check_packages", lambda: None)
    monkeypatch.setattr(sessions, "_CONNECT_PACKAGES", ("sys", "no_such.package"))
    with (
        pytest.raises(SparkUnavailable, match=r"no_such\.package, .*pip install 'pyspark\[conn"),
        session_for("sc://127.0.0.1"),
    ):
        pass


@pytest.mark.parametrize("port", [0, 99_999], ids=["closed", "none"])
def test_a_server_of_spark_connect_that_does_not_answer_is_told_at_once(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "check_packages", lambda: None)
    monkeypatch.setattr(sessions, "_CONNECT_PACKAGES", ())
    with socket.socket() as bound:  # and nobody listens there
        bound.bind(("127.0.0.1", 0))
        address = f"sc://127.0.0.1:{port or bound.getsockname()[1]}"
        with (
            pytest.raises(SparkUnavailable, match="no server of Spark Connect answers at sc://"),
            session_for(address),
        ):
            pass


def test_a_master_that_does_not_answer_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "check_packages", lambda: None)
    with socket.socket() as bound:  # and no process listens there
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        with (
            pytest.raises(SparkUnavailable, match=r"no master of Spark answers at spark://.*refus"),
            session_for(f"spark://{address},{address}"),
        ):
            pass


class Remote:
    """Looks like a session of Spark Connect; nothing of it may be used."""


Remote.__module__ = "pyspark.sql.connect.session"


def test_a_stream_through_a_session_of_spark_connect_is_refused() -> None:
    pipeline = ab.Pipeline("numbers")
    pipeline.source("numbers", ab.items([1])).sink("out", ab.discard())
    remote: SparkSession = Remote()  # type: ignore[assignment]
    assert is_connect(remote)
    with pytest.raises(ab.PipelineError, match="has each batch done on its server"):
        ab.spark.run(pipeline, remote, mode="stream")
