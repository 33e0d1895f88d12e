"""Scaling policies: values with settings, and pure functions from a reading to a decision."""
