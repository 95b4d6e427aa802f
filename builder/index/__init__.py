"""Package indexes: what requirements resolve to, project pages, wheels, members of wheels that stay there."""
