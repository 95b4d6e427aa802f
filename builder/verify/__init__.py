"""Whether an image works: the probe, what runs it, and the evidence that it leaves."""
