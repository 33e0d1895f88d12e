"""Hosts that find each other by gossip: values and rules, without input or output."""
