//! Which tokens end a generation.
//!
//! Files name one or two of them, but models were trained with more: a chat model ends a turn with its turn marker even
//! when its file names only the end of a document. So the markers of the known families count wherever a vocabulary
//! has them.

use crate::vocabulary::Vocabulary;

/// Ends of turns, messages and documents by family.
const KNOWN: [&str; 16] = [
    "<|im_end|>",            // ChatML: SmolLM, Qwen, Yi
    "<|endoftext|>",         // GPT-2, Qwen, Phi
    "<|eot_id|>",            // Llama 3
    "<|eom_id|>",            // Llama 3, a message that expects a tool's answer
    "<|end_of_text|>",       // Llama 3, Granite
    "<|eot|>",               // Llama 4
    "<|end|>",               // Phi 3
    "<end_of_turn>",         // Gemma
    "<turn|>",               // Gemma, later ones
    "<|END_OF_TURN_TOKEN|>", // Command R
    "<｜end▁of▁sentence｜>", // DeepSeek
    "<|EOT|>",               // DeepSeek Coder
    "<|return|>",            // gpt-oss
    "<|call|>",              // gpt-oss, a call that expects a tool's answer
    "<end_of_utterance>",    // SmolVLM
    "<EOT>",                 // fill-in-the-middle models
];

/// A vocabulary with this token uses `<|end|>` inside an answer, between its parts.
const ENDS_PARTS_ONLY: (&str, &str) = ("<|return|>", "<|end|>");

/// The tokens that the files name and those that are known, sorted, each once.
pub(crate) fn end_tokens(vocabulary: &Vocabulary, named: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let (whole, part) = ENDS_PARTS_ONLY;
    let is_end = |text: &&&str| !(**text == part && vocabulary.id(whole).is_some());
    let known = KNOWN.iter().filter(is_end).filter_map(|text| vocabulary.id(text));
    let exists = |id: &u32| (*id as usize) < vocabulary.len();
    let mut ends: Vec<u32> = named.into_iter().filter(exists).chain(known).collect();
    ends.sort_unstable();
    ends.dedup();
    ends
}
