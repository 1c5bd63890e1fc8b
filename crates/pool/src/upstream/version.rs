//! Versions of servers, as far as words depend on them.

/// Such as `0.11.2`; what follows the numbers does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(pub(super) [u32; 3]);

impl Version {
    /// Reads `0.11.2rc1+cpu` as 0.11.2; `None` if it does not begin with a number.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut numbers = [0; 3];
        for (number, part) in numbers.iter_mut().zip(text.trim_start_matches('v').split('.')) {
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            match part[..digits].parse() {
                Ok(value) => *number = value,
                Err(_) => break,
            }
        }
        text.trim_start_matches('v').starts_with(|c: char| c.is_ascii_digit()).then_some(Self(numbers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_up_to_what_is_none() {
        assert_eq!(Version::parse("0.11.2rc1+cpu"), Some(Version([0, 11, 2])));
        assert_eq!(Version::parse("v1.2"), Some(Version([1, 2, 0])));
        assert_eq!(Version::parse("0.8.5.post1"), Some(Version([0, 8, 5])));
        assert_eq!(Version::parse("dev"), None);
        assert!(Version([0, 9, 9]) < Version([0, 10, 2]));
    }
}
