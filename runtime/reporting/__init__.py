"""What a run reports about itself: status, ledger, snapshot, report, and how it failed."""
