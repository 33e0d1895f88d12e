"""A world in one process: the code of live runs on virtual time, over a network of its own."""
