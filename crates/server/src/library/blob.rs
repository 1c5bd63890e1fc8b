//! Names of files that clients send: by their content.

use std::fmt::{self, Write};
use std::str::FromStr;

/// The sha256 of a file that a client sends, written `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BlobDigest(String);

impl BlobDigest {
    /// By the 32 bytes of a sha256.
    pub fn of_sum(sum: &[u8]) -> Self {
        Self(sum.iter().fold(String::with_capacity(2 * sum.len()), |mut hex, byte| {
            // Writing to a text never fails.
            let _ = write!(hex, "{byte:02x}");
            hex
        }))
    }

    /// Its 64 digits.
    pub fn hex(&self) -> &str {
        &self.0
    }
}

impl FromStr for BlobDigest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Go clients write a dash where it becomes a file's name.
        let hex = text.strip_prefix("sha256:").or_else(|| text.strip_prefix("sha256-"));
        let is_hex = |hex: &&str| hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        match hex.filter(is_hex) {
            Some(hex) => Ok(Self(hex.to_ascii_lowercase())),
            None => Err(format!("{text:?} is no digest; write sha256: and 64 hexadecimal digits")),
        }
    }
}

impl fmt::Display for BlobDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "sha256:{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_64_hexadecimal_digits_are_a_digest() {
        let hex = "Ab".repeat(32);
        let digest: BlobDigest = format!("sha256:{hex}").parse().expect("a digest");
        assert_eq!(digest.to_string(), format!("sha256:{}", hex.to_lowercase()));
        assert_eq!(format!("sha256-{hex}").parse(), Ok(digest));
        for wrong in
            ["", "sha256:", "sha256:../../etc/passwd", "md5:ab", &hex, &format!("sha256:{}é", "a".repeat(62))]
        {
            assert!(wrong.parse::<BlobDigest>().is_err(), "{wrong}");
        }
    }
}
