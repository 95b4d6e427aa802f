"""From a digest that was verified to a tag that people can pull."""
