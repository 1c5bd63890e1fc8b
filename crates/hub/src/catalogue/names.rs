//! How names of the catalogue are written: `family[:size][-variant][-quant]`, as Ollama's users do.
//!
//! ```text
//! llama3.2                      the family's usual size, its usual quantization
//! llama3.2:1b                   another size
//! llama3.2:1b-instruct-q8_0     another quantization; also llama3.2:1b-q8_0, llama3.2:1b:Q8_0, llama3.2:q8_0
//! ```

use super::{Catalogue, Entry, Named};
use crate::quant::Quant;

/// What Ollama's tags add to a size for models that follow instructions; the catalogue has no others.
const VARIANTS: [&str; 4] = ["-instruct", "-it", "-chat", "-text"];

/// A longer text is no misspelt name, and comparing it would cost time that a stranger could ask for.
const LONGEST_MISSPELT: usize = 64;

/// How many names an error suggests.
const SUGGESTED: usize = 5;

impl Catalogue {
    /// The model with this name, alias or tag, whatever the case.
    pub fn named(&self, text: &str) -> Option<Named> {
        if let Some(entry) = self.find(text) {
            return Some(Named { entry, quant: None });
        }
        let (family, tag) = text.split_once(':').filter(|(_, tag)| !tag.is_empty())?;
        let (size, quant) = split_tag(tag);
        let entry = self.sized(family, size)?;
        let quant = quant.filter(|quant| Some(*quant) != entry.quant());
        // Weights in safetensors have no quantization to choose.
        (quant.is_none() || entry.is_gguf()).then_some(Named { entry, quant })
    }

    fn sized(&self, family: &str, size: &str) -> Option<&'static Entry> {
        if matches!(size, "" | "latest") {
            return self.find(family);
        }
        let plain = VARIANTS.iter().find_map(|variant| size.strip_suffix(variant));
        let find = |size: &str| self.find(&format!("{family}:{size}"));
        find(size).or_else(|| plain.and_then(find))
    }

    /// The entries of which every word is a part: of a name, of what it can do or is for, of its licence or repository.
    pub fn search(&self, words: &[impl AsRef<str>]) -> Vec<&'static Entry> {
        let fits =
            |entry: &&Entry| words.iter().all(|word| entry.mentions(&word.as_ref().to_ascii_lowercase()));
        self.entries().iter().filter(fits).collect()
    }

    /// The names most like `text`, nearest first.
    pub fn nearest(&self, text: &str) -> Vec<&'static str> {
        if text.len() > LONGEST_MISSPELT {
            return Vec::new();
        }
        let text = text.to_ascii_lowercase();
        let mut all: Vec<_> =
            self.entries().iter().flat_map(Entry::names).map(|name| (distance(&text, name), name)).collect();
        all.sort_by_key(|(distance, name)| (*distance, name.len()));
        let near = |(distance, name): &(usize, &str)| *distance <= name.len().min(text.len()) / 2;
        all.into_iter().filter(near).take(SUGGESTED).map(|(_, name)| name).collect()
    }
}

impl Entry {
    fn mentions(&self, word: &str) -> bool {
        let about = [self.about, self.license, self.repo().map_or("", |repo| repo.repo)];
        let mut texts = self.names().chain(about).chain(self.capabilities.iter().copied());
        texts.any(|text| text.to_ascii_lowercase().contains(word))
    }
}

/// Size and quantization of a tag; either may be missing.
fn split_tag(tag: &str) -> (&str, Option<Quant>) {
    if let Some(quant) = Quant::parse(tag) {
        return ("", Some(quant));
    }
    let last = tag.rsplit_once([':', '-']);
    let quantized = last.and_then(|(size, quant)| Some((size, Quant::parse(quant)?)));
    quantized.map_or((tag, None), |(size, quant)| (size, Some(quant)))
}

/// The least number of characters to insert, delete or exchange; what follows the shorter text costs nothing when it begins with
/// it, so that `qwen` is near `qwen3:0.6b`.
fn distance(text: &str, name: &str) -> usize {
    if !text.is_empty() && name.starts_with(text) {
        return 0;
    }
    let name: Vec<char> = name.chars().collect();
    let mut row: Vec<usize> = (0..=name.len()).collect();
    for (i, c) in text.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, other) in name.iter().enumerate() {
            let exchanged = diagonal + usize::from(c != *other);
            diagonal = row[j + 1];
            row[j + 1] = exchanged.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[name.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn understood(text: &str) -> Option<(&'static str, Option<&'static str>)> {
        let named = Catalogue::builtin().named(text)?;
        Some((named.entry.name, named.quant.map(Quant::as_str)))
    }

    #[test]
    fn a_name_is_written_as_ollama_s_users_write_it() {
        for (text, name, quant) in [
            ("llama3.2", "llama3.2:3b", None),
            ("Llama3.2:latest", "llama3.2:3b", None),
            ("llama3.2:1b", "llama3.2:1b", None),
            ("llama3.2:1b-instruct", "llama3.2:1b", None),
            ("llama3.2:1b-instruct-q8_0", "llama3.2:1b", Some("Q8_0")),
            ("llama3.2:1b-q8_0", "llama3.2:1b", Some("Q8_0")),
            ("llama3.2:1b:Q8_0", "llama3.2:1b", Some("Q8_0")),
            ("llama3.2:q8_0", "llama3.2:3b", Some("Q8_0")),
            ("llama3.2:1b-instruct-q4_K_M", "llama3.2:1b", None),
            ("llama3.2:1b-instruct-fp16", "llama3.2:1b", Some("F16")),
            ("gemma3:1b-it-q4_K_M", "gemma3:1b", None),
            ("smollm2:135m-q8_0", "smollm2:135m", Some("Q8_0")),
        ] {
            assert_eq!(understood(text), Some((name, quant)), "{text}");
        }
    }

    #[test]
    fn a_tag_that_means_nothing_is_no_name() {
        for text in
            ["llama3.2:9b", "llama3.2:1b-q9", "llama3.2:", "llama3.2:1b:", "all-minilm:q4_0", ":1b", "nope"]
        {
            assert_eq!(understood(text), None, "{text}");
        }
    }

    #[test]
    fn a_search_finds_what_has_all_words() {
        let names =
            |words: &[&str]| Catalogue::builtin().search(words).iter().map(|e| e.name).collect::<Vec<_>>();
        assert_eq!(names(&["QWEN3", "code"]), ["qwen3-coder:30b"]);
        assert!(names(&["embedding", "MIT"]).contains(&"bge-m3:567m"));
        assert!(names(&["qwen3", "nope"]).is_empty());
        assert_eq!(names(&[]).len(), Catalogue::builtin().entries().len());
    }

    #[test]
    fn a_misspelt_name_is_near_the_right_one() {
        let nearest = |text| Catalogue::builtin().nearest(text);
        assert_eq!(nearest("lama3.2")[0], "llama3.2");
        assert_eq!(nearest("mistrl")[0], "mistral");
        assert!(nearest("qwen3:").iter().all(|name| name.starts_with("qwen3:")));
        assert!(nearest("zzzzzzzzzzzz").is_empty());
        assert!(nearest(&"llama3.2".repeat(100)).is_empty());
    }
}
