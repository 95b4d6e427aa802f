"""What measures this machine and judges it: goes into images."""
