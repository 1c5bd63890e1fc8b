//! How a vocabulary spells bytes: from a token's text to the bytes it stands for.
//!
//! Byte-level vocabularies write every byte as a printable character (`Ġ` is a space), SentencePiece writes spaces as
//! `▁` and lone bytes as `<0xAB>`, WordPiece marks the pieces that continue a word. Decoding is concatenation of these
//! bytes, so that a stream of tokens can be decoded one by one.

use crate::vocabulary::Kind;

/// A vocabulary's convention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// Every byte is one character of [`byte_char`].
    ByteLevel,
    /// `▁` is a space, byte tokens are bytes.
    SentencePiece,
    /// Pieces are words unless they begin with `##`; spaces before punctuation and English clitics go away when tidied.
    ContinuationMarked { tidy: bool },
}

impl Spelling {
    /// Appends the bytes of a text token. `first` says that nothing was written before.
    pub(crate) fn write(self, text: &str, kind: Kind, first: bool, out: &mut Vec<u8>) {
        match (self, kind) {
            (_, Kind::Control | Kind::Unknown | Kind::UserDefined) => write_literal(self, text, first, out),
            (Spelling::ByteLevel, _) => write_byte_level(text, out),
            (Spelling::SentencePiece, _) => match byte_value(text) {
                Some(byte) => out.push(byte),
                None => write_spaced(text, out),
            },
            (Spelling::ContinuationMarked { tidy }, _) => write_word(text, first, tidy, out),
        }
    }
}

/// Added tokens are spelled as they are, except that SentencePiece vocabularies mark spaces in them as well.
fn write_literal(spelling: Spelling, text: &str, first: bool, out: &mut Vec<u8>) {
    match spelling {
        Spelling::ByteLevel => out.extend_from_slice(text.as_bytes()),
        Spelling::SentencePiece => write_spaced(text, out),
        Spelling::ContinuationMarked { .. } => write_word(text, first, false, out),
    }
}

fn write_spaced(text: &str, out: &mut Vec<u8>) {
    for (index, part) in text.split('▁').enumerate() {
        if index > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(part.as_bytes());
    }
}

fn write_byte_level(text: &str, out: &mut Vec<u8>) {
    for character in text.chars() {
        match char_byte(character) {
            Some(byte) => out.push(byte),
            None => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// What BERT's decoder removes a space before, and shortens.
const TIDIED: [(&str, &str); 11] = [
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" do not", " don't"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
];

fn write_word(text: &str, first: bool, tidy: bool, out: &mut Vec<u8>) {
    let spaced = match text.strip_prefix("##") {
        Some(rest) if !first => rest.to_owned(),
        _ if first => text.to_owned(),
        _ => format!(" {text}"),
    };
    let rules = if tidy { TIDIED.as_slice() } else { &[] };
    let tidied = rules.iter().fold(spaced, |text, (from, to)| text.replace(from, to));
    out.extend_from_slice(tidied.as_bytes());
}

/// The byte that `<0xAB>` stands for.
fn byte_value(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

/// Bytes that stand for themselves: the printable ones of Latin-1.
const fn is_printable(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

/// Byte to character: itself where printable, else the characters from U+0100 on, in order.
static CHARS: [char; 256] = {
    let mut chars = ['\0'; 256];
    let (mut byte, mut next) = (0, 0x100);
    while byte < 256 {
        chars[byte] = if is_printable(byte as u8) {
            byte as u8 as char
        } else {
            next += 1;
            match char::from_u32(next - 1) {
                Some(character) => character,
                None => panic!("U+0100..U+0144 are characters"),
            }
        };
        byte += 1;
    }
    chars
};

/// Character to byte for U+0000..U+0144; `NO_BYTE` where there is none.
static BYTES: [u16; 0x144] = {
    let mut bytes = [NO_BYTE; 0x144];
    let mut byte = 0;
    while byte < 256 {
        bytes[CHARS[byte] as usize] = byte as u16;
        byte += 1;
    }
    bytes
};

const NO_BYTE: u16 = u16::MAX;

/// The character that byte-level vocabularies write for `byte`.
pub(crate) fn byte_char(byte: u8) -> char {
    CHARS[byte as usize]
}

fn char_byte(character: char) -> Option<u8> {
    BYTES.get(character as usize).and_then(|&byte| u8::try_from(byte).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_character() {
        for byte in 0..=255 {
            assert_eq!(char_byte(byte_char(byte)), Some(byte));
        }
        assert_eq!((byte_char(b' '), byte_char(b'\n')), ('Ġ', 'Ċ'));
        assert_eq!(char_byte('\u{144}'), None);
    }

    fn written(spelling: Spelling, tokens: &[&str]) -> String {
        let mut out = Vec::new();
        for (index, text) in tokens.iter().enumerate() {
            spelling.write(text, Kind::Normal, index == 0, &mut out);
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn sentencepiece_bytes_and_spaces_are_written_as_text() {
        let tokens = ["▁caf", "<0xC3>", "<0xA9>", "▁▁", "<0xZZ>"];
        assert_eq!(written(Spelling::SentencePiece, &tokens), " café  <0xZZ>");
    }

    #[test]
    fn wordpiece_joins_continuations_and_tidies_punctuation() {
        let tokens = ["play", "##ing", "is", "fun", "!"];
        assert_eq!(written(Spelling::ContinuationMarked { tidy: true }, &tokens), "playing is fun!");
        assert_eq!(written(Spelling::ContinuationMarked { tidy: false }, &tokens), "playing is fun !");
    }
}
