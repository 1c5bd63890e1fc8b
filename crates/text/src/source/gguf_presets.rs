//! The pre-tokenizers that `tokenizer.ggml.pre` names.
//!
//! GGUF stores only a name; the patterns are those of the models' own tokenizer.json. A preset also says what else the
//! name stands for: Unicode normalisation, whole-word tokens, and whether BOS is added where the file doesn't say.

use crate::model::Whole;

/// What a name stands for.
pub(super) struct Preset {
    names: &'static [&'static str],
    /// Applied one after the other; each match is a piece.
    pub(super) patterns: &'static [&'static str],
    /// Applied after bytes were written as characters, which changes what is a digit outside of ASCII.
    pub(super) patterns_on_bytes: &'static [&'static str],
    pub(super) compose: Compose,
    pub(super) whole: Whole,
    pub(super) adds_bos: bool,
}

/// Whether text is brought into Unicode's composed form first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Compose {
    Nfc,
    AsIs,
}

/// The preset of that name.
pub(super) fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.names.contains(&name))
}

/// GPT-2's own, which tokenizer.json's `ByteLevel` stands for as well.
pub(super) const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
/// DeepSeek's list of cased letters, after a white space character or not. `(?x)` lets it span lines.
const DEEPSEEK_LETTERS: &str = r"(?x)\s?[
    A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293}\x{295}-\x{2af}
    \x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386}\x{388}-\x{38a}\x{38c}\x{38e}-\x{3a1}
    \x{3a3}-\x{3f5}\x{3f7}-\x{481}\x{48a}-\x{52f}\x{531}-\x{556}\x{10a0}-\x{10c5}\x{13a0}-\x{13f5}
    \x{13f8}-\x{13fd}\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77}
    \x{1d79}-\x{1d9a}\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d}
    \x{1f50}-\x{1f57}\x{1f59}\x{1f5b}\x{1f5d}\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc}\x{1fbe}
    \x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc}\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec}
    \x{1ff2}-\x{1ff4}\x{1ff6}-\x{1ffc}\x{2102}\x{2107}\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d}\x{2124}
    \x{2126}\x{2128}\x{212a}-\x{212d}\x{212f}-\x{2134}\x{2139}\x{213c}-\x{213f}\x{2145}-\x{2149}\x{214e}
    \x{2183}\x{2184}\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4}\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d}
    \x{a680}-\x{a69b}\x{a722}-\x{a76f}\x{a771}-\x{a787}\x{a78b}-\x{a78e}\x{ab70}-\x{abbf}
    \x{fb00}-\x{fb06}\x{fb13}-\x{fb17}\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a}\x{10400}-\x{1044f}
    \x{104b0}-\x{104d3}\x{104d8}-\x{104fb}\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df}
    \x{1e900}-\x{1e943}
]+";
const DEEPSEEK_SIGNS: &str =
    r"\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+";
const DEEPSEEK_CJK: &str = r"[\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+";
const DEEPSEEK3_CJK: &str = r"[\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+";
const BLOOM: &str = " ?[^(\\s|.,!?…。，、।۔،)]+";
const BAILING: &str =
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
const SEED: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
const KIMI: &str = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// A preset whose text stays as it is, whose words are merged and which adds no BOS.
const fn plain(names: &'static [&'static str], patterns: &'static [&'static str]) -> Preset {
    Preset {
        names,
        patterns,
        patterns_on_bytes: &[],
        compose: Compose::AsIs,
        whole: Whole::Merged,
        adds_bos: false,
    }
}

const fn composed(names: &'static [&'static str], patterns: &'static [&'static str]) -> Preset {
    Preset { compose: Compose::Nfc, ..plain(names, patterns) }
}

const fn whole(names: &'static [&'static str], patterns: &'static [&'static str], adds_bos: bool) -> Preset {
    Preset { whole: Whole::Taken, adds_bos, ..plain(names, patterns) }
}

static PRESETS: [Preset; 23] = [
    plain(
        &["gpt-2", "phi-2", "jina-es", "jina-de", "jina-v1-en", "jina-v2-es", "jina-v2-de", "jina-v2-code"],
        &[GPT2],
    ),
    plain(
        &["gigachat", "a.x-4.0", "mellum", "roberta-bpe", "jais", "exaone4", "trillion", "granite-docling"],
        &[GPT2],
    ),
    composed(&["mpt", "olmo", "modern-bert"], &[GPT2]),
    plain(&["smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b"], &[r"\p{N}", GPT2]),
    composed(&["command-r"], &[r"\p{N}", GPT2]),
    whole(
        &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        &[LLAMA3],
        true,
    ),
    plain(&["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"], &[LLAMA3]),
    composed(&["qwen2", "deepseek-r1-qwen", "megrez", "hunyuan", "kormo", "f2llmv2"], &[QWEN2]),
    composed(&["qwen35"], &[QWEN35]),
    plain(&["stablelm2", "grok-2", "solar-open"], &[QWEN2]),
    plain(&["gpt-4o", "llama4", "kanana2", "minimax-m2"], &[GPT4O]),
    whole(&["tekken"], &[TEKKEN], true),
    plain(&["deepseek-llm"], &["[\r\n]", DEEPSEEK_LETTERS, DEEPSEEK_SIGNS, r"\s+$", DEEPSEEK_CJK, r"\p{N}+"]),
    plain(&["deepseek-coder"], &["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CJK, r"\p{N}"]),
    plain(&["deepseek-v3", "hunyuan-dense", "joyai-llm"], &[r"\p{N}{1,3}", DEEPSEEK3_CJK, DEEPSEEK3]),
    Preset {
        patterns_on_bytes: &[r"\p{N}+", "[0-9][0-9][0-9]"],
        ..plain(&["falcon", "default"], &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2])
    },
    plain(&["bloom", "poro-chat", "gpt3-finnish"], &[BLOOM]),
    plain(&["viking"], &[BLOOM, r"\p{N}"]),
    plain(&["bailingmoe", "bailingmoe2", "llada-moe"], &[BAILING]),
    plain(&["seed-coder"], &[SEED]),
    plain(&["superbpe"], &[r"\p{N}+", r"(?=(\d{3})+(?!\d))"]),
    plain(&["kimi-k2"], &[KIMI]),
    Preset {
        adds_bos: true,
        ..plain(
            &["chameleon"],
            &[
                "<sentinel:[0-9]+>",
                "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
                "([\\t\\n]|    |  )",
                r"\p{N}",
                r"[\p{P}!-/:-@\[-`{-~]",
                GPT2,
            ],
        )
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Pattern;

    #[test]
    fn every_preset_compiles_and_all_but_one_run_in_linear_time() {
        for preset in &PRESETS {
            for source in preset.patterns.iter().chain(preset.patterns_on_bytes) {
                let linear = matches!(Pattern::new(source).unwrap(), Pattern::Linear { .. });
                assert!(linear || preset.names == ["superbpe"], "{:?} {source}", preset.names);
            }
        }
    }

    #[test]
    fn every_name_is_given_once() {
        let mut names: Vec<&str> = PRESETS.iter().flat_map(|preset| preset.names).copied().collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
