"""Several hosts on one machine, for `scripts/several_hosts.py`."""
