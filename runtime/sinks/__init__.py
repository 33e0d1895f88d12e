"""Where tuples go; each sink is a value made by a short function."""

from anabranch.runtime.sinks.discard import Discard, discard
from anabranch.runtime.sinks.foreach import Foreach, foreach
from anabranch.runtime.sinks.jsonl import JsonLines, jsonl
from anabranch.runtime.sinks.parquet import Parquet, parquet
from anabranch.runtime.sinks.stdout import Stdout, stdout

__all__ = [
    "Discard",
    "Foreach",
    "JsonLines",
    "Parquet",
    "Stdout",
    "discard",
    "foreach",
    "jsonl",
    "parquet",
    "stdout",
]
