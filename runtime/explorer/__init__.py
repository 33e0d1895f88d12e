"""All interleavings of the shipped core: a driver beside the live one and the simulated one."""
