"""What reads texts that people have: logs, notebooks, lists of packages."""
