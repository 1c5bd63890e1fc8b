//! Who is next, and which upstream gets it.
