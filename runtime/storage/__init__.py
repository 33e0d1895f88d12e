"""Files that outlive a process: logs of records, shared files, dead letters, patience."""
