"""From requirements to cells: demands, possible cells, and whether there are wheels."""
