"""Worlds with Spark at the ends of a pipeline: the gateway as it is, and a script in the place of
Spark."""
