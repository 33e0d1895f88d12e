"""Where tuples come from; each source is a value made by a short function."""

from anabranch.runtime.sources.files import Files, csv, files
from anabranch.runtime.sources.generate import Generate, generate
from anabranch.runtime.sources.items import Items, items
from anabranch.runtime.sources.stdin import Stdin, stdin

__all__ = ["Files", "Generate", "Items", "Stdin", "csv", "files", "generate", "items", "stdin"]
