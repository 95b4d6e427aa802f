"""What is to be made, and whether it can work: matrices, compatibility, requirements, locks."""
