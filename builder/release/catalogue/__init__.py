"""The catalogue: a static site that says which image works on which card, and how that is known."""
