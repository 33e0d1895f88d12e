"""How the program meets the world: interfaces, each with the implementation that is real."""
