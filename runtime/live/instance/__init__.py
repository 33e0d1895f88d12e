"""An instance: the core's events and effects, its way of tuples, key groups, orders, state."""
