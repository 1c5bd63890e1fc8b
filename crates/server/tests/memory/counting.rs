//! The bytes that a request takes: an allocator that counts those of the whole process.

#![allow(unsafe_code, reason = "counting bytes takes a global allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::{Body, Bytes};
use axum::http;
use futures_util::{StreamExt, stream};
use ropeway_server::{App, router};
use tower::ServiceExt;

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn add(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator as it came; counting touches no memory of theirs.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`, and `pointer` came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size);
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `realloc`, and `pointer` came from `System`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What a request took at its peak, and its status.
pub struct Cost {
    pub peak: usize,
    pub status: u16,
}

/// What a request costs whose answer is read and forgotten.
pub async fn cost(app: &Arc<App>, path: &str, body: &Bytes) -> Cost {
    let pieces: Vec<_> = (0..body.len())
        .step_by(64 << 10)
        .map(|start| Ok::<_, std::io::Error>(body.slice(start..body.len().min(start + (64 << 10)))))
        .collect();
    // The rest of a body that is refused need not be waited for.
    let request =
        http::Request::post(path).header("content-length", body.len()).header("expect", "100-continue");
    let request = request.body(Body::from_stream(stream::iter(pieces))).expect("a request");
    let router = router(Arc::clone(app));
    // What it was made of is neither counted nor given back meanwhile.
    let _kept = router.clone();
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let response = router.oneshot(request).await.expect("an answer");
    let status = response.status().as_u16();
    let mut answer = response.into_body().into_data_stream();
    while let Some(part) = answer.next().await {
        drop(part.expect("the whole answer"));
    }
    Cost { peak: PEAK.load(Ordering::Relaxed).saturating_sub(before), status }
}
