"""What the methods share: parameters and fitting, prediction, heads, EM steps, files."""
