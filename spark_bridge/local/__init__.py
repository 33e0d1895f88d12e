"""A Spark on this machine: its Java, its folder, its session."""
