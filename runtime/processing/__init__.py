"""The work on tuples without keys: steps, failures, owners of values, batches as bytes."""
