"""What an instance measures of its work, and the reading that policies get."""
