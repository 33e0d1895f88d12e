"""Hosts that know each other: values and rules, without input or output."""
