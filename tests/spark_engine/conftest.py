"""One Spark for all tests here, which ends with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from anabranch.spark_bridge.errors import SparkUnavailable
from anabranch.spark_bridge.local.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    try:
        with session("tests", conf={"spark.driver.extraJavaOptions": QUICK_JVM}) as running:
            yield running
    except SparkUnavailable as missing:
        pytest.skip(str(missing))
