"""Wheels turned into image layers: read without being believed, laid out as pip would install them."""
