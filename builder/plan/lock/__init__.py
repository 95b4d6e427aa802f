"""What a matrix resolves to, fixed by content: base digests, wheels and Debian packages by sha256."""
