//! Bodies on their way in: read as they arrive, counted, refused as soon as they can't be served.
//!
//! ```text
//! content-length  -> a share of the memory in flight (budget), before anything is read
//! every piece     -> counted (scan) against what the route's fields have room for (shape)
//! the whole body  -> parsed (json) elsewhere (offload); the share is held until the request is tokens
//! ```
//! A body of `b` bytes with `v` names and values takes at most `4 b + 512 v` bytes until then, which is what its share is;
//! beside it, a thread that tokenises has working memory for a part of the one text it reads. (Texts of special tokens
//! take a little more in conversations, and tokens that fit into the context four bytes each: see `tests/memory`.)
//! Must never: hold bytes that no share covers, or keep a refused body.

pub mod budget;
pub mod json;
mod pool;
mod scan;
pub mod shape;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, EXPECT};
use hyper::body::Body as _;

use self::budget::SMALL;
use self::pool::Share;
use self::scan::Scanner;
use self::shape::{Contexts, Field};
use crate::app::App;
use crate::connections::SlowBody;
use crate::error::{ApiError, Kind};
use crate::guard::clients::Owner;

/// Memory that a byte of a body takes at most: the body, its texts with a buffer for their escapes, and later the texts
/// with what the template makes of them.
pub const PER_BYTE: usize = 4;

/// Memory that a name or a value takes at most: a parsed one has up to 256 bytes, and there may be two of it.
pub const PER_VALUE: usize = 512;

/// What a body whose length is not told is taken for at first: just too long for a small one, as it may grow.
const FIRST: usize = SMALL / PER_BYTE + 1;

/// How long the rest of a refused body is received, so that a client that is still sending gets to read why.
const LINGER: Duration = Duration::from_secs(2);

/// Bytes a second of it that are received meanwhile: more would take time from the models for nothing.
const LINGER_SPEED: f64 = (16 << 20) as f64;

/// Whose request it is, and the memory that is set aside for it. Clones share it.
#[derive(Clone, Debug)]
pub struct Intake {
    owner: Owner,
    share: Arc<Mutex<Option<Share>>>,
}

impl Default for Intake {
    fn default() -> Self {
        Self::new(Owner::Anonymous)
    }
}

impl Intake {
    /// Nothing is set aside yet.
    pub fn new(owner: Owner) -> Self {
        Self { owner, share: Arc::default() }
    }

    /// Whose request it is.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Gives the memory back: the request consists of tokens now, which the engine accounts for.
    pub fn release(&self) {
        self.share.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Sets more memory aside, for work on more than was sent.
    pub fn cover(&self, bytes: usize) -> Result<(), ApiError> {
        match &mut *self.share.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(share) => share.grow_to(bytes),
            None => Ok(()),
        }
    }

    /// Reads a body with these fields.
    pub async fn read(
        &self,
        app: &App,
        headers: &HeaderMap,
        fields: &'static [Field],
        mut body: Body,
    ) -> Result<Bytes, ApiError> {
        let told = told_length(headers, &body);
        let limit = Limit::of(app);
        if told.is_some_and(|told| told > limit.bytes) {
            linger(headers, body).await;
            return Err(limit.exceeded());
        }
        let mut share = app.memory.take(self.owner, told.unwrap_or(FIRST) * PER_BYTE).await?;
        let mut arriving = Arriving {
            scanner: Scanner::new(fields, Contexts::of(app), told.unwrap_or(limit.bytes)),
            bytes: Vec::with_capacity(told.unwrap_or(FIRST)),
            limit,
        };
        while let Some(piece) = next(&mut body).await? {
            if let Err(error) = arriving.take(&piece, &mut share) {
                drop((arriving, share));
                linger(headers, body).await;
                return Err(error);
            }
        }
        let bytes = arriving.finish(&mut share)?;
        *self.share.lock().unwrap_or_else(PoisonError::into_inner) = Some(share);
        Ok(bytes)
    }
}

/// How long a body may be.
#[derive(Clone, Copy)]
struct Limit {
    bytes: usize,
    flag: &'static str,
}

impl Limit {
    fn of(app: &App) -> Self {
        let memory = app.memory.largest() / PER_BYTE;
        if app.limits.body <= memory {
            Self { bytes: app.limits.body, flag: "--max-body" }
        } else {
            Self { bytes: memory, flag: "--memory-in-flight" }
        }
    }

    fn exceeded(self) -> ApiError {
        let what = format!(
            "the body is larger than the {} bytes this server reads; send less, or raise {}",
            self.bytes, self.flag
        );
        ApiError::new(Kind::TooLarge, what)
    }
}

/// A body, as far as it has arrived.
struct Arriving {
    scanner: Scanner,
    bytes: Vec<u8>,
    limit: Limit,
}

impl Arriving {
    fn take(&mut self, piece: &[u8], share: &mut Share) -> Result<(), ApiError> {
        let length = self.bytes.len() + piece.len();
        if length > self.limit.bytes {
            return Err(self.limit.exceeded());
        }
        self.scanner.feed(piece)?;
        share.grow_to(self.memory(length))?;
        if length > self.bytes.capacity() {
            // By half rather than by as much again: this is counted as one copy.
            self.bytes.reserve_exact(piece.len().max(self.bytes.len() / 2));
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    fn memory(&self, length: usize) -> usize {
        length * PER_BYTE + self.scanner.values() * PER_VALUE
    }

    fn finish(self, share: &mut Share) -> Result<Bytes, ApiError> {
        self.scanner.finish(self.bytes.len())?;
        share.grow_to(self.memory(self.bytes.len()))?;
        Ok(self.bytes.into())
    }
}

fn told_length(headers: &HeaderMap, body: &Body) -> Option<usize> {
    let header = || headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
    body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok()).or_else(header)
}

/// The next piece of a body that is not over.
async fn next(body: &mut Body) -> Result<Option<Bytes>, ApiError> {
    loop {
        let frame = std::future::poll_fn(|context| std::pin::Pin::new(&mut *body).poll_frame(context)).await;
        match frame {
            None => return Ok(None),
            Some(Err(error)) => return Err(unread(&error)),
            Some(Ok(frame)) => {
                if let Ok(piece) = frame.into_data() {
                    return Ok(Some(piece));
                }
            }
        }
    }
}

/// Receives a body to its end and forgets it, as long as that does not take long.
pub async fn forget(mut body: Body) {
    let all = async {
        while let Ok(Some(part)) = next(&mut body).await {
            tokio::time::sleep(Duration::from_secs_f64(part.len() as f64 / LINGER_SPEED)).await;
        }
    };
    let _ = tokio::time::timeout(LINGER, all).await;
}

/// Receives what a client sends before it reads the refusal. One that asked whether to send is told by the refusal itself.
async fn linger(headers: &HeaderMap, body: Body) {
    if !headers.contains_key(EXPECT) {
        forget(body).await;
    }
}

fn unread(error: &axum::Error) -> ApiError {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(cause) = source {
        if let Some(slow) = cause.downcast_ref::<SlowBody>() {
            return ApiError::new(Kind::SlowBody, slow.to_string());
        }
        source = cause.source();
    }
    ApiError::invalid(format!("the body could not be received: {error}"))
}
