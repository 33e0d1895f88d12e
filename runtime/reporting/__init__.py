"""What a run says about itself: status, ledger, snapshot, report, and how it failed."""
