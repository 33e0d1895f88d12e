"""The worlds of seeds, a share of which have Spark at the ends of their pipelines."""

from __future__ import annotations

import random

from anabranch.runtime.world import drawing
from anabranch.runtime.world.drawn_trial import Crashes, Trial
from anabranch.spark_bridge.service import check_packages
from anabranch.spark_bridge.world.gateway_link import SPARK

SHARE = 0.1


def drawn(seed: int, scene: str = "", *, size: str = "small", crashes: Crashes = "some") -> Trial:
    """The world of a seed, as in `anabranch.runtime.world.drawing`; `scene` may also be "spark".
    Raises `SparkUnavailable` if that takes packages which are not there."""
    of_spark = not scene and random.Random(f"{seed} with spark").random() < SHARE
    if not (of_spark or scene == SPARK):
        return drawing.drawn(seed, scene, size=size, crashes=crashes)
    check_packages()
    from anabranch.spark_bridge.world.scene import SparkScene

    return drawing.drawn(seed, SparkScene(seed), size=size, crashes=crashes)
