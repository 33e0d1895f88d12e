"""The commands of `anabranch`, one module each, imported when called."""
