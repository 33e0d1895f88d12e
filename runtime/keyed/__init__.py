"""State by key: what instances of one operator keep for each key, and how it moves between them.

Keys fall into key groups, groups belong to instances. Everything here is a value or pure of input
and output; the drivers, live and simulated, decide when groups move and carry what is exported.
"""
