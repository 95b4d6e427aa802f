"""What wheels and base images say of themselves, read in small parts, and kept in the user's cache."""
