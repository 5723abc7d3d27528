"""Experiments: interruptible grids of data, noise, methods and seeds, with tables and figures."""
