//! Names of GGUF quantizations: how they are written, found in file names, and which is taken when nobody says.

use std::fmt;

/// Those that Ropeway reads, the first choice first: 4 bits where they cost little quality, then more bits, then fewer.
const READABLE: [&str; 25] = [
    "Q4_K_M", "Q4_K_S", "Q4_K_L", "Q4_K_XL", "Q4_0", "Q4_1", "IQ4_NL", "IQ4_XS", "Q5_K_M", "Q5_K_S",
    "Q5_K_L", "Q5_0", "Q5_1", "Q6_K", "Q6_K_L", "Q8_0", "Q3_K_XL", "Q3_K_L", "Q3_K_M", "Q3_K_S", "Q2_K",
    "Q2_K_L", "BF16", "F16", "F32",
];

/// Those it knows by name only.
const UNREADABLE: [&str; 12] = [
    "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS", "IQ3_XS", "IQ3_S", "IQ3_M", "MXFP4",
    "TQ1_0",
];

/// A quantization, by its usual name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quant(&'static str);

impl Quant {
    /// The quantization of that name, whatever the case; `fp16` is Ollama's way to write `F16`.
    pub fn parse(text: &str) -> Option<Quant> {
        let text = if text.eq_ignore_ascii_case("fp16") { "F16" } else { text };
        Quant::known().find(|known| known.0.eq_ignore_ascii_case(text))
    }

    /// The quantization that a file's name ends with, or has between dots and dashes.
    pub fn of_file(name: &str) -> Option<Quant> {
        let stem = name.rsplit('/').next().unwrap_or(name);
        let stem = stem.strip_suffix(".gguf").unwrap_or(stem);
        let at_the_end = |known: &Quant| {
            let start = stem.len().checked_sub(known.0.len());
            let (rest, end) = start.and_then(|start| stem.split_at_checked(start)).unwrap_or(("", ""));
            end.eq_ignore_ascii_case(known.0) && rest.ends_with(['-', '.', '_'])
        };
        let longest = Quant::known().filter(at_the_end).max_by_key(|known| known.0.len());
        longest.or_else(|| stem.split(['-', '.']).rev().find_map(Quant::parse))
    }

    /// How soon it is chosen when nobody says which; `None` for one that can't be read.
    pub(crate) fn rank(self) -> Option<usize> {
        READABLE.iter().position(|known| *known == self.0)
    }

    /// The usual name.
    pub fn as_str(self) -> &'static str {
        self.0
    }

    fn known() -> impl Iterator<Item = Quant> {
        READABLE.into_iter().chain(UNREADABLE).map(Quant)
    }
}

impl fmt::Display for Quant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_files_name_tells_its_quantization() {
        for (name, quant) in [
            ("Llama-3.2-1B-Instruct-Q4_K_M.gguf", Some("Q4_K_M")),
            ("smollm2-1.7b-instruct-q4_k_m.gguf", Some("Q4_K_M")),
            ("m.Q8_0.gguf", Some("Q8_0")),
            ("Q6_K/m_IQ4_NL.gguf", Some("IQ4_NL")),
            ("m.i1-Q4_K_S.gguf", Some("Q4_K_S")),
            ("m-fp16.gguf", Some("F16")),
            ("m.f16.v2.gguf", Some("F16")),
            ("Phi-3-mini-4k-instruct-q4.gguf", None),
            ("m.gguf", None),
        ] {
            assert_eq!(Quant::of_file(name).map(Quant::as_str), quant, "{name}");
        }
    }

    #[test]
    fn four_bits_come_first_and_what_cannot_be_read_is_never_chosen() {
        let rank = |name| Quant::parse(name).unwrap().rank();
        assert_eq!(rank("q4_K_M"), Some(0));
        assert!(rank("Q8_0") < rank("Q2_K") && rank("Q2_K") < rank("F16"));
        assert_eq!(rank("IQ2_XS"), None);
        assert_eq!(Quant::parse("Q9_9"), None);
    }
}
