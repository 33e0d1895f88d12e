"""The driver in virtual time, beside live and explorer: the same cores, meters and policies."""
