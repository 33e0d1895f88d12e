"""Values as such: what may be shared, what cannot change, how a foreign one is shown."""
