"""One Spark for all tests here, which ends with them; each test has a gateway of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anabranch.spark_bridge.errors import SparkUnavailable
from anabranch.spark_bridge.local.session import session
from tests.spark_bridge.threaded import GatewayThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    try:
        with session("tests") as running:
            yield running
    except SparkUnavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayThread]:
    thread = GatewayThread(tmp_path / "run" / "spark", {"out": "text string, n long"})
    thread.start()
    yield thread
    thread.stop()
