"""What people see of a run. Views read frozen snapshots and reports, and change nothing."""
