"""Protocols that are wrong on purpose: ours with one rule broken, and the published one.

The explorer and the swarm find the fault of each. The package that users install lacks this folder.
"""
