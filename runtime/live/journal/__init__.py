"""The journal of an instance: records in segments, written once, read whole or not at all."""
