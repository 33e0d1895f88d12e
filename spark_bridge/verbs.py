"""What a user does with a running pipeline from Spark's side, in one call each."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.spark_bridge.client import Caller
from anabranch.spark_bridge.messages import Ending, Finish, Release, Request
from anabranch.spark_bridge.places import Place, RunEnded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def finish(run: str | Path, stream: str, token: str | None = None, patience_s: float = 30) -> None:
    """Say that no more input comes for `stream`, so that the pipeline can end when it has done
    all. `run`: the run's folder, or the gateway's `host:port` together with its `token`.

    May be repeated, also after the end of the run if its `state` folder records the end. Raises
    `GatewayLost` (a `ConnectionError`) if no gateway answers for `patience_s` seconds,
    `PlaceUnknown` (a `ValueError`) if there never was one.
    """
    _ask(run, token, patience_s, Finish(stream=stream))


def wait(run: str | Path, token: str | None = None, patience_s: float = 30) -> None:
    """Return when the pipeline has ended, so that all its results can be collected; at once if its
    `state` folder records the end.

    Raises as `finish` does, and `RunEnded` (a `ValueError`) if it was stopped or has failed.
    """
    _ask(run, token, patience_s, Ending(), stopped_too=False)


def release(run: str | Path, token: str | None = None, patience_s: float = 30) -> None:
    """Say that no more results will be collected: an ended pipeline waits no longer.

    Does nothing if the `state` folder records that the run has ended by itself. Raises as `finish`
    does.
    """
    _ask(run, token, patience_s, Release())


def _ask(
    run: str | Path,
    token: str | None,
    patience_s: float,
    request: Request,
    *,
    stopped_too: bool = True,
) -> None:
    """Unless the run has ended, so that nothing is left to be asked for."""
    try:
        with contextlib.closing(Caller(_place(run, token), patience_s)) as caller:
            caller.ask(request, unless_ended=True)
    except RunEnded as ended:
        if not ended.complete and not stopped_too:
            raise


def write(
    frame: DataFrame, run: str | Path, stream: str, *, token: str | None = None, **options: Any
) -> None:
    """Feed a whole DataFrame. Options as in the data source, as `final=True`, `writeId="..."`."""
    writer = frame.write.format("anabranch").mode("append").option("stream", stream)
    writer.options(**_where(run, token), **_texts(options)).save()


def read(
    spark: SparkSession, run: str | Path, stream: str, *, token: str | None = None, **options: Any
) -> DataFrame:
    """The results there are now, as a DataFrame.

    What streaming queries have collected is deleted once all of them have acknowledged it, so
    collect a stream either this way or by streaming queries.
    """
    reader = spark.read.format("anabranch").option("stream", stream)
    return reader.options(**_where(run, token), **_texts(options)).load()


def _place(run: str | Path, token: str | None) -> Place:
    return Place.of_run(run) if token is None else Place.at(str(run), token)


def _where(run: str | Path, token: str | None) -> dict[str, str]:
    if token is None:
        return {"run": str(Path(run).absolute())}
    return {"gateway": str(run), "token": token}


def _texts(options: dict[str, Any]) -> dict[str, str]:
    return {n: str(v).lower() if isinstance(v, bool) else str(v) for n, v in options.items()}
