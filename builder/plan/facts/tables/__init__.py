"""What is known of cards, toolkits, releases and systems: data in ``data/``, a row each with its sources."""
