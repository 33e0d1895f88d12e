"""The work on tuples without keys: steps, failures, who owns a value, batches as bytes."""
