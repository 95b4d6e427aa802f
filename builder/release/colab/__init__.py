"""Colab: its dated runtimes as matrices, how near an image is to one, and images as local runtimes."""
