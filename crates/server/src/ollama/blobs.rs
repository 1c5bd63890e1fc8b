//! `HEAD` and `POST /api/blobs/sha256:...`: files that clients send to make models of.
//!
//! ```text
//! body -> chunks, a few in flight -> a thread of its own: hash, append to FILE.part-N -> digest as announced? rename : delete
//! ```
//! A file is bounded while it arrives, and never seen before its digest was compared.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use futures_util::StreamExt;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use super::OllamaError;
use crate::app::Shared;
use crate::error::{ApiError, Kind};
use crate::library::BlobDigest;

/// The largest file: more than the weights of any model that runs on one machine's memory today.
const MOST_BYTES: u64 = 512 << 30;

/// Chunks between the connection and the disk.
const IN_FLIGHT: usize = 16;

/// Whether a file is here.
pub async fn find(State(app): State<Shared>, Path(digest): Path<String>) -> Result<StatusCode, OllamaError> {
    let place = place(&app, &digest)?;
    let is_here = app.shelf()?.with(move |_| Ok(place.path.is_file())).await?;
    if is_here {
        return Ok(StatusCode::OK);
    }
    Err(ApiError::new(Kind::NotFound, format!("blob {digest:?} not found; send it with POST")).into())
}

/// Takes a file.
pub async fn take(
    State(app): State<Shared>,
    Path(digest): Path<String>,
    request: Request,
) -> Result<StatusCode, OllamaError> {
    let place = place(&app, &digest)?;
    if place.path.is_file() {
        return Ok(StatusCode::OK);
    }
    let (chunks, arriving) = mpsc::channel(IN_FLIGHT);
    let writing = app.shelf()?.with(move |_| write(&place, arriving));
    let reading = async move {
        let mut body = request.into_body().into_data_stream();
        while let Some(chunk) = body.next().await {
            // Dropping the sender without the end tells the writer that there is more to come which never will.
            let chunk = chunk.map_err(|_| ApiError::invalid("the file did not arrive whole"))?;
            if chunks.send(Arriving::Chunk(chunk)).await.is_err() {
                return Ok(());
            }
        }
        let _ = chunks.send(Arriving::End).await;
        Ok::<(), ApiError>(())
    };
    let (read, written) = futures_util::future::join(reading, writing).await;
    read.and(written)?;
    Ok(StatusCode::CREATED)
}

enum Arriving {
    Chunk(Bytes),
    End,
}

/// Where a file goes, and what it must be.
struct Place {
    path: PathBuf,
    digest: BlobDigest,
}

fn place(app: &Shared, digest: &str) -> Result<Place, ApiError> {
    let digest: BlobDigest = digest.parse().map_err(ApiError::invalid)?;
    Ok(Place { path: app.shelf()?.blob(&digest), digest })
}

/// A file that is deleted unless it becomes what it should.
struct Unfinished {
    path: PathBuf,
    file: File,
}

impl Unfinished {
    fn create(place: &Place) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        if let Some(folder) = place.path.parent() {
            fs::create_dir_all(folder)?;
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = place.path.with_extension(format!("part-{}-{number}", std::process::id()));
        Ok(Self { file: File::create(&path)?, path })
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // It is not there any more if it was renamed.
        let _ = fs::remove_file(&self.path);
    }
}

fn write(place: &Place, mut arriving: mpsc::Receiver<Arriving>) -> Result<(), ApiError> {
    let mut unfinished = Unfinished::create(place).map_err(|error| unwritten(&error))?;
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    loop {
        match arriving.blocking_recv() {
            Some(Arriving::Chunk(chunk)) => {
                bytes += chunk.len() as u64;
                if bytes > MOST_BYTES {
                    return Err(ApiError::new(
                        Kind::TooLarge,
                        format!("a file has at most {MOST_BYTES} bytes"),
                    ));
                }
                hash.update(&chunk);
                unfinished.file.write_all(&chunk).map_err(|error| unwritten(&error))?;
            }
            Some(Arriving::End) => break,
            None => return Err(ApiError::invalid("the file did not arrive whole; send it again")),
        }
    }
    let got = BlobDigest::of_sum(&hash.finalize());
    if got != place.digest {
        let what = format!("digest mismatch: expected {}, got {got}; send the file again", place.digest);
        return Err(ApiError::invalid(what));
    }
    let finish = || unfinished.file.sync_all().and_then(|()| fs::rename(&unfinished.path, &place.path));
    finish().map_err(|error| unwritten(&error))
}

fn unwritten(error: &io::Error) -> ApiError {
    tracing::error!(target: "library", %error, "a file that a client sent can't be written");
    let kind = if error.kind() == io::ErrorKind::StorageFull { Kind::NoRoom } else { Kind::Internal };
    ApiError::new(kind, "the file can't be written; see the server's log")
}
