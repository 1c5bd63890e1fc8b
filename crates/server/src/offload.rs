//! Long work off the threads that everyone's streams run on.
//!
//! A handler shares its thread with every other connection: what takes longer than a token must not be done there.
//!
//! ```text
//! up to 16 KiB    done at once by whoever asks
//! up to 256 KiB   the short lane                  some milliseconds each
//! more            the long lane: one thread, which gives way to the model (pace)
//! grammars        the lane of grammars
//! ```
//! Each lane takes clients in turn, so that one client's work waits behind its own. Work belongs to its request: while it
//! waits it is thrown away with the request, while it runs it is told to stop ([`Interrupt`]). A lane has as many threads
//! as it has works at once, whatever clients do.

mod lane;
mod pace;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

use ropeway_text::Interrupt;
use tokio::sync::oneshot;

use self::lane::{Lane, Manner};
pub use self::pace::Served;
use crate::error::{ApiError, Kind};
use crate::intake::Intake;

/// Bytes of text that are worked on at once: about a millisecond of tokenising, less than handing it over may cost.
const SMALL: usize = 16 << 10;

/// Bytes of text in the short lane: about 16 ms of tokenising.
const SHORT: usize = 256 << 10;

/// How much work something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// So many bytes are read.
    Bytes(usize),
    /// A grammar is compiled, which takes long whatever its size.
    Grammar,
}

/// The lanes. Threads beyond two per lane would compete with the model for the same cores, and be no faster.
struct Lanes {
    short: Lane,
    long: Lane,
    grammars: Lane,
}

static LANES: LazyLock<Lanes> = LazyLock::new(|| Lanes {
    short: Lane::start("offload-short", 2, Manner::Usual),
    long: Lane::start("offload-long", 1, Manner::GivesWay),
    grammars: Lane::start("offload-grammar", 2, Manner::Usual),
});

impl Lanes {
    fn of(&self, effort: Effort) -> &Lane {
        match effort {
            Effort::Grammar => &self.grammars,
            Effort::Bytes(bytes) if bytes <= SHORT => &self.short,
            Effort::Bytes(_) => &self.long,
        }
    }
}

/// Does work of this effort: here if it is little, elsewhere if it is much. A panic is an error like any other.
///
/// The memory set aside for the request (`intake`) is held until the work is over, also if the client leaves.
pub async fn offload<T, E>(
    intake: &Intake,
    effort: Effort,
    work: impl FnOnce(&Interrupt) -> Result<T, E> + Send + 'static,
) -> Result<T, ApiError>
where
    T: Send + 'static,
    E: Into<ApiError> + Send + 'static,
{
    if let Effort::Bytes(0..=SMALL) = effort {
        return work(&Interrupt::default()).map_err(Into::into);
    }
    elsewhere(LANES.of(effort), intake, work).await
}

async fn elsewhere<T, E>(
    lane: &Lane,
    intake: &Intake,
    work: impl FnOnce(&Interrupt) -> Result<T, E> + Send + 'static,
) -> Result<T, ApiError>
where
    T: Send + 'static,
    E: Into<ApiError> + Send + 'static,
{
    let (sender, done) = oneshot::channel();
    let held = intake.clone();
    let ticket = lane.enqueue(intake.owner(), move |interrupt| {
        let result = catch_unwind(AssertUnwindSafe(|| work(interrupt)));
        drop(held);
        let _ = sender.send(result);
    });
    let done = done.await;
    drop(ticket);
    match done {
        Ok(Ok(result)) => result.map_err(Into::into),
        _ => Err(ApiError::new(Kind::Internal, "the request could not be read; see the server's log")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Mutex};

    use futures_util::FutureExt;

    use super::*;
    use crate::guard::clients::Owner;

    const LITTLE: Effort = Effort::Bytes(SMALL);
    const MUCH: Effort = Effort::Bytes(SMALL + 1);

    fn of(client: usize) -> Intake {
        Intake::new(Owner::Key(client))
    }

    #[tokio::test]
    async fn long_work_is_done_on_another_thread_and_may_panic() {
        let here = std::thread::current().id();
        let id = |_: &Interrupt| Ok::<_, ApiError>(std::thread::current().id());
        assert_eq!(offload(&of(0), LITTLE, id).await.unwrap(), here);
        assert_ne!(offload(&of(0), MUCH, id).await.unwrap(), here);
        let crashed = offload(&of(0), MUCH, |_| -> Result<(), ApiError> { panic!("a bug") }).await;
        assert_eq!(crashed.unwrap_err().kind, Kind::Internal);
        assert_ne!(offload(&of(0), MUCH, id).await.unwrap(), here);
    }

    #[test]
    fn work_goes_to_the_lane_of_its_size() {
        let lane = |effort| std::ptr::from_ref(LANES.of(effort));
        assert_eq!(lane(Effort::Bytes(SHORT)), &raw const LANES.short);
        assert_eq!(lane(Effort::Bytes(SHORT + 1)), &raw const LANES.long);
        assert_eq!(lane(Effort::Grammar), &raw const LANES.grammars);
    }

    #[tokio::test]
    async fn clients_take_turns_and_none_waits_behind_all_work_of_another() {
        let lane = Lane::start("test", 1, Manner::Usual);
        let (open, gate) = channel::<()>();
        let order = Arc::new(Mutex::new(Vec::new()));
        let note = |name: &'static str| {
            let order = Arc::clone(&order);
            move |_: &Interrupt| {
                order.lock().unwrap().push(name);
                Ok::<_, ApiError>(())
            }
        };
        let held = move |_: &Interrupt| {
            let _ = gate.recv();
            Ok::<_, ApiError>(())
        };
        let (a, b, other) = (of(0), of(1), of(2));
        let blocked = elsewhere(&lane, &other, held);
        let works = async {
            tokio::join!(
                elsewhere(&lane, &a, note("a1")),
                elsewhere(&lane, &a, note("a2")),
                elsewhere(&lane, &a, note("a3")),
                elsewhere(&lane, &b, note("b1")),
                elsewhere(&lane, &b, note("b2")),
                async { drop(open) },
            )
        };
        let _ = tokio::join!(blocked, works);
        assert_eq!(*order.lock().unwrap(), ["a1", "b1", "a2", "b2", "a3"]);
    }

    #[tokio::test]
    async fn work_of_a_client_that_left_is_not_begun_or_is_told_to_stop() {
        let lane = Arc::new(Lane::start("test", 1, Manner::Usual));
        let (began, begun) = channel::<()>();
        let (stopped, is_stopped) = channel::<()>();
        let started = {
            let lane = Arc::clone(&lane);
            tokio::spawn(async move {
                let work = move |interrupt: &Interrupt| {
                    began.send(()).unwrap();
                    while !interrupt.is_raised() {
                        std::thread::yield_now();
                    }
                    stopped.send(()).unwrap();
                    Ok::<_, ApiError>(())
                };
                elsewhere(&lane, &of(0), work).await
            })
        };
        tokio::task::spawn_blocking(move || begun.recv().unwrap()).await.unwrap();
        let (token, never) = channel::<()>();
        let queued = {
            let lane = Arc::clone(&lane);
            let work = move |_: &Interrupt| {
                token.send(()).unwrap();
                Ok::<_, ApiError>(())
            };
            tokio::spawn(async move { elsewhere(&lane, &of(1), work).await })
        };
        while lane.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        queued.abort();
        let _ = queued.await;
        assert_eq!(lane.waiting(), 0);
        assert!(never.recv().is_err(), "the work was thrown away unbegun");
        started.abort();
        tokio::task::spawn_blocking(move || is_stopped.recv().unwrap()).await.unwrap();
    }

    #[tokio::test]
    async fn a_lane_has_no_more_threads_than_works_at_once_however_many_clients_leave() {
        let lane = Arc::new(Lane::start("test", 1, Manner::Usual));
        let threads = Arc::new(Mutex::new(Vec::new()));
        for client in 0..50 {
            let (lane, threads) = (Arc::clone(&lane), Arc::clone(&threads));
            let work = move |_: &Interrupt| {
                threads.lock().unwrap().push(std::thread::current().id());
                Ok::<_, ApiError>(())
            };
            let left = async move { elsewhere(&lane, &of(client), work).await };
            let _ = left.now_or_never();
        }
        elsewhere(&lane, &of(99), |_| Ok::<_, ApiError>(())).await.unwrap();
        threads.lock().unwrap().dedup();
        assert!(threads.lock().unwrap().len() <= 1);
    }
}
