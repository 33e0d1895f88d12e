"""Where PySpark looks for the data source "anabranch".

PySpark imports every top-level module named `pyspark_…` at its first use of a Python data source
and takes `DefaultSource` from it; so `format("anabranch")` works without any registration.
"""

from anabranch.spark_bridge.datasource import AnabranchDataSource as DefaultSource

__all__ = ["DefaultSource"]
