//! One line on its way: submitted, advanced as its results arrive, and in the end a response body.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use ropeway_embed::{EmbedOptions, Embedding, PendingEmbedding};
use ropeway_engine::Class;
use ropeway_generation::{Collector, Generated, GenerationStream, Identity, Job, RequestError};
use ropeway_openai::chat::ChatRender;
use ropeway_openai::completions::{CompletionRender, PromptEcho};
use ropeway_openai::embeddings::{self, EmbeddingJob, Encoding};
use ropeway_openai::{ChatCompletionRequest, CompletionRequest, EmbeddingsRequest};
use serde_json::Value;

use super::line::Ask;
use super::models::Models;

/// A line's requests in the models.
pub enum Flight {
    /// Prompts that are continued.
    Generation(Generation),
    /// Texts that become vectors.
    Embeddings(Embeddings),
}

/// A line that is over.
pub struct Landed {
    /// The body of its response.
    pub body: Value,
    /// Tokens that were generated for it.
    pub generated: usize,
}

/// Prompts that are continued, and how the answers are rendered.
pub struct Generation {
    streams: Vec<Collecting>,
    render: Render,
}

/// A prompt's stream, and what came of it so far.
struct Collecting {
    stream: GenerationStream,
    collector: Collector,
    is_over: bool,
}

enum Render {
    Chat(ChatRender),
    Completion(CompletionRender),
}

/// Texts that become vectors.
pub struct Embeddings {
    model: String,
    encoding: Encoding,
    pending: Vec<PendingEmbedding>,
    /// Vectors of the first texts.
    done: Vec<Embedding>,
}

impl Flight {
    /// Submits what a line asks for; `number` is the line's, `id` what its answer is known by.
    pub fn submit(id: &str, number: u64, ask: Ask, models: &Models) -> Result<Flight, RequestError> {
        match ask {
            Ask::Chat(request) => chat(id, number, *request, models).map(Flight::Generation),
            Ask::Completion(request) => completion(id, number, *request, models).map(Flight::Generation),
            Ask::Embeddings(request) => embedding(request, models).map(Flight::Embeddings),
        }
    }

    /// Prompts and texts it holds in the models.
    pub fn weight(&self) -> usize {
        match self {
            Flight::Generation(generation) => generation.streams.len(),
            Flight::Embeddings(embeddings) => embeddings.pending.len(),
        }
    }

    /// Takes what has arrived. The context's waker is called when there is more.
    pub fn advance(&mut self, context: &mut Context<'_>) -> Poll<Result<Landed, RequestError>> {
        match self {
            Flight::Generation(generation) => generation.advance(context),
            Flight::Embeddings(embeddings) => embeddings.advance(context),
        }
    }
}

fn chat(
    id: &str,
    number: u64,
    request: ChatCompletionRequest,
    models: &Models,
) -> Result<Generation, RequestError> {
    let (wants_logprobs, tokens) = (request.wants_logprobs(), request.fields.token_shape());
    let job = request.into_job(&models.defaults.numbered(number))?;
    let (prompt, stream) = submit(job, models)?;
    let identity = Identity::named(format!("chatcmpl-{id}"), &models.name);
    let tokenizer = models.generator.tokenizer().cloned();
    let render = Render::Chat(ChatRender { identity, tokenizer, wants_logprobs, tokens, prompt });
    Ok(Generation { streams: vec![stream], render })
}

fn completion(
    id: &str,
    number: u64,
    request: CompletionRequest,
    models: &Models,
) -> Result<Generation, RequestError> {
    let shape = request.shape();
    let tokenizer = models.generator.tokenizer().cloned();
    let (mut prompts, mut streams) = (Vec::new(), Vec::new());
    for job in request.into_jobs(&models.defaults.numbered(number))? {
        let text = shape.echo(&job.prompt, tokenizer.as_ref());
        let (prompt, stream) = submit(job, models)?;
        prompts.push(PromptEcho::new(text, &prompt, &shape));
        streams.push(stream);
    }
    let identity = Identity::named(format!("cmpl-{id}"), &models.name);
    let render = Render::Completion(CompletionRender { identity, tokenizer, shape, prompts });
    Ok(Generation { streams, render })
}

/// The prompt's tokens, and its stream.
fn submit(job: Job, models: &Models) -> Result<(Vec<u32>, Collecting), RequestError> {
    let mut prepared = models.generator.prepare(job)?;
    prepared.request.class = Class::Bulk;
    let prompt = prepared.request.prompt.clone();
    let stream = models.generator.submit(prepared)?;
    Ok((prompt, Collecting { stream, collector: Collector::default(), is_over: false }))
}

impl Generation {
    fn advance(&mut self, context: &mut Context<'_>) -> Poll<Result<Landed, RequestError>> {
        let mut all_over = true;
        for stream in &mut self.streams {
            match stream.advance(context) {
                Err(error) => return Poll::Ready(Err(error)),
                Ok(()) => all_over &= stream.is_over,
            }
        }
        if !all_over {
            return Poll::Pending;
        }
        let collected = self.streams.iter_mut().map(|stream| std::mem::take(&mut stream.collector).finish());
        let collected: Vec<Generated> = collected.collect();
        let choices = collected.iter().flat_map(|generated| &generated.choices);
        let generated = choices.map(|choice| choice.finish.usage.generated).sum();
        let body = match &self.render {
            Render::Chat(render) => render.whole(&collected[0].choices),
            Render::Completion(render) => render.whole(&collected),
        };
        Poll::Ready(Ok(Landed { body, generated }))
    }
}

impl Collecting {
    fn advance(&mut self, context: &mut Context<'_>) -> Result<(), RequestError> {
        while !self.is_over {
            match Pin::new(&mut self.stream).poll_next(context) {
                Poll::Pending => break,
                Poll::Ready(None) => self.is_over = true,
                Poll::Ready(Some(event)) => self.collector.push(event)?,
            }
        }
        Ok(())
    }
}

fn embedding(request: EmbeddingsRequest, models: &Models) -> Result<Embeddings, RequestError> {
    let EmbeddingJob { texts, options, encoding } = request.read()?;
    let embedder = models.embedding.embedder()?;
    let options = EmbedOptions { class: Class::Bulk, ..options };
    let mut pending = Vec::with_capacity(texts.len());
    for (index, text) in texts.iter().enumerate() {
        let submitted = embedder.embed(text.as_input(), &options);
        pending.push(submitted.map_err(|error| embeddings::failed(&error, index))?);
    }
    // Taken from the end, in the order of the texts.
    pending.reverse();
    Ok(Embeddings { model: models.embedding.name.clone(), encoding, pending, done: Vec::new() })
}

impl Embeddings {
    fn advance(&mut self, context: &mut Context<'_>) -> Poll<Result<Landed, RequestError>> {
        while let Some(next) = self.pending.last_mut() {
            match Pin::new(next).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => {
                    return Poll::Ready(Err(embeddings::failed(&error, self.done.len())));
                }
                Poll::Ready(Ok(embedding)) => self.done.push(embedding),
            }
            self.pending.pop();
        }
        let body = embeddings::response(&self.model, self.encoding, &self.done);
        Poll::Ready(Ok(Landed { body, generated: 0 }))
    }
}
