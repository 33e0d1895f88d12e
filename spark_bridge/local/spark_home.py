"""A SPARK_HOME of our own over the installed one, so that Spark is quick and quiet.

- No `python/` folder: Spark would put its `pyspark.zip`, which holds no compiled modules, first
  on the path of the ten or so Python processes of a query, each of which would compile it anew.
- A `conf/` of our own: logging as we want it, whatever the installation says.
- A `bin/spark-submit` that sends all output of the JVM, also what it prints before logging is
  set up, to a file.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from anabranch.spark_bridge.errors import SparkUnavailable

LOG_VARIABLE = "ANABRANCH_SPARK_LOG"

_SUBMIT = f"""\
#!/bin/sh
# Made by Anabranch, in place of Spark's own, to keep the console clean.
export PYTHONHASHSEED=0
exec "$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.SparkSubmit "$@" \
>>"${LOG_VARIABLE}" 2>&1
"""

_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n%ex
"""


def make_home(folder: Path) -> Path:
    """Build it in `folder`; returns its path. Raises `SparkUnavailable` without PySpark."""
    real = installed_home()
    home = folder / "spark"
    (home / "bin").mkdir(parents=True)
    (home / "conf").mkdir()
    (home / "jars").symlink_to(real / "jars")
    for script in (real / "bin").iterdir():
        if script.name != "spark-submit":
            (home / "bin" / script.name).symlink_to(script)
    submit = home / "bin" / "spark-submit"
    submit.write_text(_SUBMIT)
    submit.chmod(0o755)
    (home / "conf" / "log4j2.properties").write_text(_LOG4J)
    return home


def installed_home() -> Path:
    """The folder with Spark's `jars` and `bin`: in the package, or what SPARK_HOME says."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise SparkUnavailable(
            "Spark needs the package pyspark, which is not installed. "
            "Get it with `pip install 'anabranch[spark]'`."
        )
    places = [Path(spec.submodule_search_locations[0])]
    if given := os.environ.get("SPARK_HOME"):
        places.append(Path(given))
    for place in places:
        if (place / "jars").is_dir() and (place / "bin" / "spark-class").is_file():
            return place.resolve()
    raise SparkUnavailable(
        f"pyspark at {places[0]} comes without Spark itself (pyspark-client?). "
        "Get the whole with `pip install 'anabranch[spark]'`, or set SPARK_HOME."
    )
