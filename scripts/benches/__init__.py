"""The benches of `scripts/bench.py`: one file each, and what they share."""
