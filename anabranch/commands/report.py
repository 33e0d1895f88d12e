"""`anabranch report`: reports of runs as tables."""

from __future__ import annotations

from pathlib import Path

import click

from anabranch.commands.failing import Refusal, WrongUsage
from anabranch.commands.out_folder import OutFolder
from anabranch.commands.telling import say

EXAMPLES = """\b
Examples:
  anabranch run headlines.py --report monday.json
  anabranch report --parquet runs monday.json
  anabranch report --parquet runs reports/*.json
"""


@click.command(epilog=EXAMPLES)
@click.argument(
    "reports",
    metavar="REPORT.json...",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
)
@click.option(
    "--parquet",
    "folder",
    required=True,
    type=OutFolder(),
    metavar="FOLDER",
    help="For the tables; runs are added to what is there.",
)
def command(reports: tuple[Path, ...], folder: Path) -> None:
    """Write reports of runs, as `anabranch run --report` makes them, as tables of Parquet files
    for pandas, Spark and others: docs/reports.md."""
    import importlib.util

    from anabranch.report_tables import TABLES, NoReport, read
    from anabranch.runtime.sinks.parquet import WITHOUT_PYARROW

    if importlib.util.find_spec("pyarrow") is None:
        raise WrongUsage(WITHOUT_PYARROW.replace("a pipeline with ab.parquet", "--parquet"))
    try:
        found = [read(path) for path in reports]
    except NoReport as error:
        raise WrongUsage(str(error)) from None
    except OSError as error:
        raise WrongUsage(f"{error.filename}: {error.strerror}") from None
    try:
        for tables in found:
            tables.write(folder)
    except OSError as error:
        raise Refusal(f"cannot write to {error.filename}: {error.strerror}") from None
    count = len({tables.run for tables in found})  # a report may be named twice
    runs = f"{count} run{'s' * (count != 1)}"
    say(f"{runs} in {folder}: {', '.join(TABLES)}")
