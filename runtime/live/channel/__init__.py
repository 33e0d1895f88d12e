"""A channel between two instances: frames, sessions, connections, and all channels of one."""
