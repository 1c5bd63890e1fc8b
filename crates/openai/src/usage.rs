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

/// The usage of all answers to one conversation, with so many tokens of reasoning. What was drafted from elsewhere than the prediction is not told.
pub fn chat<'a>(answers: impl IntoIterator<Item = &'a Usage, IntoIter: Clone>, reasoning: usize) -> Value {
    let answers = answers.into_iter();
    let drafting = answers.clone().map(|usage| usage.drafting);
    let (predicted, accepted) = drafting.fold((0, 0), |(predicted, accepted), one| {
        (predicted + one.predicted, accepted + one.predicted_accepted)
    });
    let mut usage = usage(answers);
    usage["completion_tokens_details"] = json!({
        "reasoning_tokens": reasoning,
        "accepted_prediction_tokens": accepted,
        "rejected_prediction_tokens": predicted - accepted,
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
