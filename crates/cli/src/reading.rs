//! Texts from files and standard input: bounded, and UTF-8.

use std::io::{self, Read};

use crate::failure::Failure;

/// The longest text read: more than any model's window, little enough for any machine.
const LONGEST_TEXT: u64 = 64 << 20;

/// All of `from`; `name` is what a person calls it.
pub fn text(from: impl Read, name: &str) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    from.take(LONGEST_TEXT + 1).read_to_end(&mut bytes).map_err(|error| unreadable(name, &error))?;
    if bytes.len() as u64 > LONGEST_TEXT {
        let limit = LONGEST_TEXT >> 20;
        return Err(Failure::new(format!("{name} is longer than {limit} MiB"), "give a shorter text"));
    }
    String::from_utf8(bytes).map_err(|error| {
        Failure::new(format!("{name} is not UTF-8 text: {error}"), "convert it to UTF-8 first")
    })
}

/// What could not be opened or read.
pub fn unreadable(name: &str, error: &io::Error) -> Failure {
    Failure::new(format!("could not read {name}: {error}"), "check the spelling and the permissions")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_whole_and_what_is_none_is_refused_by_name() {
        assert_eq!(text(&b"caf\xc3\xa9\n"[..], "standard input").expect("a text"), "caf\u{e9}\n");
        let error = text(&b"\xff\xfe"[..], "notes.txt").expect_err("no text");
        assert!(format!("{error:?}").contains("notes.txt is not UTF-8"), "{error:?}");
        let error = text(io::repeat(b'a'), "standard input").expect_err("no end");
        assert!(format!("{error:?}").contains("longer than 64 MiB"), "{error:?}");
    }
}
