"""What a user writes: the pipeline and its streams, checked before anything runs."""
