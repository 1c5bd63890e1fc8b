//! Plain generation: a prompt or many in, texts out, without a conversation.

mod batch;
mod one;
mod request;
mod stream;

use crate::routes::Routes;

/// Its routes. Errors have OpenAI's shape.
pub fn routes() -> Routes {
    Routes::default()
        .post("/generate", one::create)
        .post("/generate/stream", stream::create)
        .post("/generate/batch", batch::create)
}
