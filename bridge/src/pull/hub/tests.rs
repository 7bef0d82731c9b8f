//! Fetching from a server that does as it is told.
