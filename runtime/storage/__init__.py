"""Files that outlive a process: shared ones, small records beside them, dead letters, patience."""
