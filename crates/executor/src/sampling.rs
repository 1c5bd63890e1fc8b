//! How a row of logits becomes a token, as plain data.

use std::ops::Deref;
use std::sync::Arc;

/// Key of a sequence's random choices. Together with the position of a token it decides that choice alone:
/// not the batch, not the other sequences, not the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Seed(pub u64);

/// What is added to the logits of single tokens. Copies share one list, so that a step's rows are made without an allocation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Biases(Option<Arc<[(u32, f32)]>>);

impl Biases {
    /// These, and tokens that are never chosen.
    pub fn with_banned(&self, tokens: impl IntoIterator<Item = u32>) -> Self {
        let banned = tokens.into_iter().map(|token| (token, f32::NEG_INFINITY));
        self.iter().copied().chain(banned).collect()
    }
}

impl Deref for Biases {
    type Target = [(u32, f32)];

    fn deref(&self) -> &Self::Target {
        self.0.as_deref().unwrap_or_default()
    }
}

impl FromIterator<(u32, f32)> for Biases {
    fn from_iter<T: IntoIterator<Item = (u32, f32)>>(biases: T) -> Self {
        let list: Arc<[(u32, f32)]> = biases.into_iter().collect();
        Self((!list.is_empty()).then_some(list))
    }
}

impl<const N: usize> From<[(u32, f32); N]> for Biases {
    fn from(biases: [(u32, f32); N]) -> Self {
        biases.into_iter().collect()
    }
}

/// Choices a request may make about sampling. [`SamplingParams::default`] samples from the model's plain
/// distribution; [`SamplingParams::greedy`] always takes the most likely token.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// Divides the logits; 0 means greedy.
    pub temperature: f32,
    /// Keep only the `top_k` most likely tokens; 0 keeps all.
    pub top_k: u32,
    /// Keep the smallest set of most likely tokens whose probabilities reach `top_p`; 1 keeps all.
    pub top_p: f32,
    /// Keep tokens at least `min_p` times as likely as the most likely one; 0 keeps all.
    pub min_p: f32,
    /// Keep the tokens whose surprise is closest to the expected one, up to this mass; 1 keeps all.
    pub typical_p: f32,
    /// Divides positive and multiplies negative logits of tokens in prompt and answer; 1 is off.
    pub repetition_penalty: f32,
    /// Subtracted once from each token in the answer; 0 is off.
    pub presence_penalty: f32,
    /// Subtracted per occurrence in the answer; 0 is off.
    pub frequency_penalty: f32,
    /// With a window, all three penalties look at so many of the latest tokens, prompt included, as Ollama's
    /// `repeat_last_n` does; without one, repetition looks at everything, the others at the answer alone, as OpenAI and
    /// vLLM do.
    pub penalty_window: Option<u32>,
    /// Added to the logits of single tokens, before everything else.
    pub logit_bias: Biases,
    /// If there, no others are chosen; ascending.
    pub allowed: Option<Arc<[u32]>>,
    /// Key of the random choices.
    pub seed: Seed,
    /// Whether the caller asked for this seed. Another server that computes the request is told it only then, because some choose
    /// faster without one.
    pub is_seeded: bool,
    /// How many most likely tokens to report beside the chosen one; `None` asks for no log-probabilities.
    pub logprobs: Option<u32>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_window: None,
            logit_bias: Biases::default(),
            allowed: None,
            seed: Seed(0),
            is_seeded: false,
            logprobs: None,
        }
    }
}

impl SamplingParams {
    /// Always the most likely token.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Whether the choice looks at earlier tokens at all.
    #[allow(clippy::float_cmp, reason = "only exactly neutral values leave the logits untouched")]
    pub fn uses_history(&self) -> bool {
        self.repetition_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }
}
