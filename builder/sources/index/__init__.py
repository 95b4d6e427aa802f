"""Package indexes: resolving requirements, project pages, downloads, and reading members of remote wheels."""
