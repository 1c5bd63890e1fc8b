//! A request of an agent or a session, from its submission to its end.

use std::fmt;

use ropeway_engine::Request;
use ropeway_generation::{AnyBackend, Finish, GenerationEvent};

use super::agent::{Figures, Listed};
use super::id::AgentKey;
use super::registry::{Lesson, PinBoard, pin_name};
use crate::app::Shared;
use crate::model::{Model, unix_seconds};

/// The agent or session that a request belongs to.
#[derive(Clone)]
pub struct AgentLink {
    /// Where it is listed.
    pub app: Shared,
    /// Which one.
    pub key: AgentKey,
    /// Whether the server holds its conversation: an agent that is deleted meanwhile is not listed again.
    pub is_claimed: bool,
}

impl fmt::Debug for AgentLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AgentLink").field(&self.key).finish()
    }
}

/// One request. What it did is noted when it is dropped: at its end, or when its client leaves.
pub struct Turn {
    link: AgentLink,
    model: String,
    backend: AnyBackend,
    salt: Vec<u8>,
    /// The prompt's, and those of the first answer so far: its names are known when they are all there.
    tokens: Vec<u32>,
    prompt_tokens: usize,
    /// Whether anything of it was computed.
    has_begun: bool,
    cached: usize,
    fetched: usize,
    /// Tokens that came.
    generated: usize,
    /// Tokens of the choices that are over, as their usage says.
    counted: usize,
}

impl Turn {
    /// A request on its way to the model.
    pub fn new(link: AgentLink, model: &Model, request: &Request) -> Self {
        Self {
            link,
            model: model.name.clone(),
            backend: model.engine(),
            salt: request.salt.clone(),
            tokens: request.prompt.clone(),
            prompt_tokens: request.prompt.len(),
            has_begun: false,
            cached: 0,
            fetched: 0,
            generated: 0,
            counted: 0,
        }
    }

    /// Something happened to it.
    pub fn see(&mut self, event: &GenerationEvent) {
        match event {
            GenerationEvent::PromptProgress { cached, .. } => {
                self.has_begun = true;
                self.cached = *cached;
            }
            GenerationEvent::Placed { .. } | GenerationEvent::PromptLogprob(_) => {}
            GenerationEvent::Output { choice, tokens, .. } => {
                self.has_begun = true;
                self.generated += tokens.len();
                if *choice == 0 {
                    self.tokens.extend(tokens.iter().map(|sampled| sampled.token));
                }
            }
            GenerationEvent::Finished { finish: Finish { usage, .. }, .. } => {
                self.fetched += usage.fetched;
                self.counted += usage.generated;
                // What was answered as text is counted at its end only.
                self.prompt_tokens = self.prompt_tokens.max(usage.prompt);
                self.cached = self.cached.max(usage.cached);
            }
        }
    }

    fn lesson(&mut self) -> Lesson {
        let names = self.backend.engine().map(|engine| engine.names(&self.salt, &self.tokens));
        let generated = if self.generated > 0 { self.generated } else { self.counted };
        let figures = Figures {
            requests: 1,
            hits: u64::from(self.cached > 0),
            prompt_tokens: self.prompt_tokens as u64,
            cached_tokens: self.cached as u64,
            disk_tokens: self.fetched as u64,
            generated_tokens: generated as u64,
        };
        Lesson {
            model: std::mem::take(&mut self.model),
            names: names.unwrap_or_default(),
            tokens: self.tokens.len(),
            figures,
        }
    }

    /// An agent that turned to another model keeps nothing of the one before.
    fn leave_former_model(&self, before: &Listed) {
        let AgentLink { app, key, .. } = &self.link;
        if before.about.model != self.model && before.about.pinned.blocks > 0 {
            let former = app.models.loaded(&before.about.model).map(|model| model.engine());
            if let Some(tier) = former.as_ref().and_then(AnyBackend::engine).and_then(|engine| engine.tier())
            {
                tier.unpin(&pin_name(key));
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Nothing is learned from what was turned down, or left before its turn came.
        if !self.has_begun {
            return;
        }
        let now = unix_seconds();
        let before = self.link.app.agents.registry.get(&self.link.key, now).ok();
        if before.is_none() && self.link.is_claimed {
            return;
        }
        if let Some(before) = before {
            self.leave_former_model(&before);
        }
        let lesson = self.lesson();
        let board = self.backend.engine().and_then(PinBoard::of);
        self.link.app.agents.registry.learn(&self.link.key, lesson, board, now);
    }
}
