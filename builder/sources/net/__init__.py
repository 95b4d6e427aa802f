"""HTTP and downloads: retries, time limits, resumption, checks by content."""
