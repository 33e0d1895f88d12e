"""Protocols that are wrong on purpose: each rule of ours broken, and the published protocol.

The explorer and the swarm find them out. They are in the repository only: what is installed works
without them.
"""
