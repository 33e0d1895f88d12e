"""Where tuples go; each sink is a value made by a short function of its own module, which is
imported when it is asked for."""
