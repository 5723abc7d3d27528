"""What the aggregators share: the loop, the crowd as arrays, compiled kernels, intervals."""
