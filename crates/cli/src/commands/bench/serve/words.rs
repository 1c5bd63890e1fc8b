//! Words to make prompts of: frequent ones, so that nearly every vocabulary has each of them as a single token.

use ropeway_testkit::rng::Rng;

/// Frequent English words, short ones.
const WORDS: [&str; 128] = [
    "the", "of", "and", "to", "in", "is", "that", "for", "it", "as", "was", "with", "be", "by", "on", "not",
    "he", "his", "but", "at", "are", "this", "have", "from", "or", "had", "an", "they", "which", "one",
    "you", "were", "all", "her", "she", "there", "would", "their", "we", "him", "been", "has", "when", "who",
    "will", "no", "more", "if", "out", "so", "said", "what", "up", "its", "about", "into", "than", "them",
    "can", "only", "other", "new", "some", "could", "time", "these", "two", "may", "then", "do", "first",
    "any", "my", "now", "such", "like", "our", "over", "man", "me", "even", "most", "made", "after", "also",
    "did", "many", "before", "must", "through", "years", "where", "much", "your", "way", "well", "down",
    "should", "because", "each", "just", "those", "people", "how", "too", "little", "state", "good", "very",
    "make", "world", "still", "own", "see", "men", "work", "long", "here", "get", "both", "between", "life",
    "being", "under", "never", "day", "same", "another",
];

/// The shortest word, to fill up with.
pub const FILLER: &str = "a";

/// So many words.
pub fn some(rng: &mut Rng, count: usize) -> Vec<&'static str> {
    (0..count).map(|_| rng.pick(&WORDS)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_is_there_twice() {
        let mut sorted = WORDS.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), WORDS.len());
    }
}
