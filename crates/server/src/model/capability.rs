//! What a model can do, in the words that Ollama's clients look for.

use ropeway_text::{ChatTemplate, OutputStyle};

/// Something that a model can do. Filling in before a suffix (`insert`) and images (`vision`) are none of these here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Continue texts and answer conversations.
    Completion,
    /// Call tools: its template writes them.
    Tools,
    /// Think before it answers, told apart from the answer.
    Thinking,
    /// Turn texts into vectors.
    Embedding,
}

impl Capability {
    /// Its name in Ollama's API.
    pub fn name(self) -> &'static str {
        match self {
            Capability::Completion => "completion",
            Capability::Tools => "tools",
            Capability::Thinking => "thinking",
            Capability::Embedding => "embedding",
        }
    }

    /// What a model that generates text can do, by its template and its way of writing.
    pub fn of_text_model(template: &ChatTemplate, style: &OutputStyle) -> Vec<Capability> {
        let tools = template.writes_tools().then_some(Capability::Tools);
        let thinking = style.has_reasoning().then_some(Capability::Thinking);
        [Some(Capability::Completion), tools, thinking].into_iter().flatten().collect()
    }
}
