"""A run that has stopped at a consistent point, as a folder that another one begins from."""
