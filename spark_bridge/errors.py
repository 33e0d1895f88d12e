"""What the bridge raises when Spark cannot be used here."""

from __future__ import annotations


class SparkUnavailable(RuntimeError):
    """PySpark or a Java runtime is missing. The message says how to get it."""
