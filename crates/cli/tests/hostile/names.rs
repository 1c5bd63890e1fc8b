//! Flags, rights and keys that the rows rely on: a name that changes is changed here.

/// The flag that bounds the memory of all bodies in flight.
pub const MEMORY_IN_FLIGHT: &str = "--memory-in-flight";

/// What the rows set it to, as the flag's value and in MB.
pub const MEMORY_IN_FLIGHT_VALUE: &str = "256MiB";
pub const MEMORY_IN_FLIGHT_MB: f64 = 268.0;

/// The command that checks an installed model's files.
pub const VERIFY: &str = "verify";

/// A key with every right; nobody's but the operator's.
pub const OPERATOR: &str = "sk-operator-0001";

/// Honest clients' key.
pub const ALICE: &str = "sk-alice-0000001";

/// The attacker's key, as urgent as the honest ones.
pub const MALLORY: &str = "sk-mallory-00001";

/// A key for work that is never urgent.
pub const NIGHTLY: &str = "sk-nightly-00001";

/// All keys and what their holders may do.
pub const KEYS: &str = "\
sk-operator-0001  name=operator  admin  pull
sk-alice-0000001  name=alice
sk-mallory-00001  name=mallory
sk-nightly-00001  name=nightly  max-priority=bulk
";
