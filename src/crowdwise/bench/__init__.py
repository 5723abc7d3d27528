"""Experiments at one command: grids of data, noise, methods and seeds that can be interrupted, and their tables and figures."""
