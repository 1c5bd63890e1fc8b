//! Token counts in OpenAI's shape.

use ropeway_engine::Usage;
use serde_json::{Value, json};

/// The usage of all answers to one prompt.
pub fn usage<'a>(answers: impl IntoIterator<Item = &'a Usage>) -> Value {
    let (mut prompt, mut cached, mut generated) = (0, 0, 0);
    for usage in answers {
        (prompt, cached) = (usage.prompt, usage.cached);
        generated += usage.generated;
    }
    totals(prompt, cached, generated)
}

/// What chat completions tell about their tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct Details {
    /// Tokens of reasoning.
    pub reasoning: usize,
    /// Whether the client predicted the answer.
    pub is_predicted: bool,
}

/// The usage of all answers to one conversation. Without a prediction no token of one was accepted or rejected, whatever
/// was drafted.
pub fn chat<'a>(answers: impl IntoIterator<Item = &'a Usage, IntoIter: Clone>, details: Details) -> Value {
    let answers = answers.into_iter();
    let predicted = answers.clone().filter(|_| details.is_predicted).map(|usage| usage.drafting);
    let (drafted, accepted) =
        predicted.fold((0, 0), |(drafted, accepted), one| (drafted + one.drafted, accepted + one.accepted));
    let mut usage = usage(answers);
    usage["completion_tokens_details"] = json!({
        "reasoning_tokens": details.reasoning,
        "accepted_prediction_tokens": accepted,
        "rejected_prediction_tokens": drafted - accepted,
    });
    usage
}

/// Counts that are added up already.
pub fn totals(prompt: usize, cached: usize, generated: usize) -> Value {
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": { "cached_tokens": cached },
    })
}
