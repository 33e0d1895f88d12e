"""One Spark for all tests here, which ends with them."""

from tests.spark_bridge.conftest import spark

__all__ = ["spark"]
