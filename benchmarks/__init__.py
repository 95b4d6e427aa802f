"""What rtbuild costs beside what people do today; `python -m benchmarks.builds --help`."""
