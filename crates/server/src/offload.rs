//! Long work off the threads that everyone's streams run on.
//!
//! A handler shares its thread with every other connection: what takes longer than a token must not be done there.

use tokio::sync::Semaphore;

use crate::error::{ApiError, Kind};

/// Bytes of text that are worked on at once: about a millisecond of tokenising, less than handing it over may cost.
const SMALL: usize = 16 << 10;

/// Works done at the same time. They compete with the model for the same cores; more of them would be no faster.
const AT_ONCE: usize = 2;

static SLOTS: Semaphore = Semaphore::const_new(AT_ONCE);

/// Does work on `bytes` of text: here if they are few, elsewhere if they are many. A panic is an error like any other.
pub async fn offload<T, E>(
    bytes: usize,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, ApiError>
where
    T: Send + 'static,
    E: Into<ApiError> + Send + 'static,
{
    if bytes <= SMALL {
        return work().map_err(Into::into);
    }
    let slot = SLOTS.acquire().await;
    let done = tokio::task::spawn_blocking(work).await;
    drop(slot);
    match done {
        Ok(done) => done.map_err(Into::into),
        Err(_) => Err(ApiError::new(Kind::Internal, "the request could not be read; see the server's log")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn long_work_is_done_on_another_thread_and_may_fall() {
        let here = std::thread::current().id();
        let id = || Ok::<_, ApiError>(std::thread::current().id());
        assert_eq!(offload(SMALL, id).await.unwrap(), here);
        assert_ne!(offload(SMALL + 1, id).await.unwrap(), here);
        let fallen = offload(SMALL + 1, || -> Result<(), ApiError> { panic!("a bug") }).await;
        assert_eq!(fallen.unwrap_err().kind, Kind::Internal);
    }
}
