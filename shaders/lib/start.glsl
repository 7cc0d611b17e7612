// Starts of packed sequences, which are int32.

// A start of the caller, which may be below 0, as one from 0 to n.
uint start_within(uint start, uint n) { return uint(clamp(int(start), 0, int(n))); }
