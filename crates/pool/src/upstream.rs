//! One server as it is spoken to: connections, dialects, probes.
