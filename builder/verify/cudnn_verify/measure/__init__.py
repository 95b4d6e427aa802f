"""The half that measures this machine and judges it: it goes into images."""
