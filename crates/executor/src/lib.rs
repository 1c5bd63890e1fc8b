//! The seam between engine and hardware: a flat batch in, sampled tokens out
