"""What experiments share: criteria judged in words, tables, and runs spread over processors."""
