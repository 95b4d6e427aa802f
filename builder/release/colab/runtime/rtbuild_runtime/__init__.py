"""Starts Jupyter in an image so that Colab's page, or a browser, can use it as its runtime."""
