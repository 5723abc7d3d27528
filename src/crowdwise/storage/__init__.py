"""Files that survive a crash: one atomic writer, locks, limits, arrays and documents."""
