//! Which instructions the CPU has. An [`Isa`] is a value that can only be obtained if it does, so a kernel
//! table behind one may be called without further checks.

use std::fmt;

/// A level of CPU support, proven present.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Isa(Level);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub(crate) enum Level {
    Reference,
    Portable,
    Avx2,
    Avx512Vnni,
}

const LEVELS: [Level; 4] = [Level::Reference, Level::Portable, Level::Avx2, Level::Avx512Vnni];

/// A name that is unknown, or that this CPU cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IsaError {
    /// No such level.
    #[error("unknown instruction set `{0}`; use one of reference, portable, avx2, avx512-vnni")]
    Unknown(String),
    /// The CPU lacks it.
    #[error("this CPU has no {name}; use one of {usable}, or leave --isa out")]
    Missing {
        /// The level asked for.
        name: &'static str,
        /// What would work.
        usable: String,
    },
}

impl Isa {
    /// The fastest level this CPU has.
    pub fn best() -> Self {
        Self::available().pop().expect("the reference level runs everywhere")
    }

    /// The plain loops that specify every kernel.
    pub fn reference() -> Self {
        Self(Level::Reference)
    }

    /// All levels this CPU has, slowest first.
    pub fn available() -> Vec<Self> {
        LEVELS.into_iter().filter(|level| level.is_present()).map(Self).collect()
    }

    /// The level called `name`, if this CPU has it.
    pub fn named(name: &str) -> Result<Self, IsaError> {
        let level = LEVELS.into_iter().find(|level| level.name() == name);
        let level = level.ok_or_else(|| IsaError::Unknown(name.to_owned()))?;
        if level.is_present() {
            return Ok(Self(level));
        }
        let usable: Vec<_> = Self::available().iter().map(|isa| isa.name()).collect();
        Err(IsaError::Missing { name: level.name(), usable: usable.join(", ") })
    }

    /// Its name, as `--isa` takes it.
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    pub(crate) fn level(self) -> Level {
        self.0
    }
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Reference => "reference",
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512Vnni => "avx512-vnni",
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn is_present(self) -> bool {
        match self {
            Self::Reference | Self::Portable => true,
            Self::Avx2 => has_avx2(),
            Self::Avx512Vnni => has_avx2() && has_avx512_vnni(),
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn is_present(self) -> bool {
        matches!(self, Self::Reference | Self::Portable)
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}

#[cfg(target_arch = "x86_64")]
fn has_avx512_vnni() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni")
}

impl fmt::Debug for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_available_level_is_found_by_its_name() {
        for isa in Isa::available() {
            assert_eq!(Isa::named(isa.name()), Ok(isa));
        }
        assert_eq!(Isa::best(), *Isa::available().last().unwrap());
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = Isa::named("mmx").unwrap_err().to_string();
        assert!(error.contains("avx512-vnni"), "{error}");
    }
}
