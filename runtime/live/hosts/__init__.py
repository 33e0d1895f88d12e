"""The agent of a host: its gossip with others, and what it is asked."""
