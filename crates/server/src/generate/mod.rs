//! Plain generation: a prompt or many in, texts out, without a conversation.

mod batch;
mod one;
mod request;
mod stream;

pub use request::{Parameters, result};
pub use stream::respond;

use crate::routes::Routes;

/// Its routes. Errors have OpenAI's shape.
pub fn routes() -> Routes {
    Routes::of("Plain generation")
        .post("/generate", one::create)
        .says("Continue a text.")
        .takes::<one::GenerateRequest>(r#"{"prompt": "Once upon a time", "max_tokens": 32}"#)
        .post("/generate/stream", stream::create)
        .says("Continue a text, one event per piece.")
        .takes::<one::GenerateRequest>(r#"{"prompt": "Once upon a time", "max_tokens": 32}"#)
        .post("/generate/batch", batch::create)
        .says("Continue many texts; results in their order.")
        .takes::<batch::BatchRequest>(r#"{"prompts": ["Once upon a time", "Hello"], "max_tokens": 32}"#)
}
