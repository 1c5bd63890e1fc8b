//! Trying again: what passes is waited for, with growing pauses or as long as the server asks.

use std::time::Duration;

use crate::cancel::Cancel;
use crate::error::SourceError;

/// How often something is tried before it is given up.
const ATTEMPTS: u32 = 5;

/// The pause before the second attempt; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// The longest pause a server may ask for: whoever wants more is told to come back themselves.
const LONGEST_PAUSE: Duration = Duration::from_secs(120);

/// What is left of somebody's patience.
pub(crate) struct Attempts {
    left: u32,
    pause: Duration,
}

impl Attempts {
    pub(crate) fn new() -> Attempts {
        Attempts { left: ATTEMPTS - 1, pause: FIRST_PAUSE }
    }

    /// Waits before the next attempt, or gives the error back if there shall be none.
    pub(crate) fn wait_after(&mut self, error: SourceError, cancel: &Cancel) -> Result<(), SourceError> {
        let asked = match error {
            SourceError::Busy { retry_after, .. } => retry_after.unwrap_or_default(),
            SourceError::Network { .. } => Duration::ZERO,
            _ => return Err(error),
        };
        if self.left == 0 || asked > LONGEST_PAUSE {
            return Err(error);
        }
        cancel.pause(self.pause.max(asked))?;
        self.left -= 1;
        self.pause *= 2;
        Ok(())
    }
}

/// Does something until it works, or fails for good.
pub(crate) fn retrying<T>(
    cancel: &Cancel,
    mut attempt: impl FnMut() -> Result<T, SourceError>,
) -> Result<T, SourceError> {
    let mut attempts = Attempts::new();
    loop {
        match attempt() {
            Err(error) => attempts.wait_after(error, cancel)?,
            done => return done,
        }
    }
}

/// The same for a first question: a server that can't be reached at all is told of at once, one that is merely busy is waited for.
pub(crate) fn while_busy<T>(
    cancel: &Cancel,
    mut attempt: impl FnMut() -> Result<T, SourceError>,
) -> Result<T, SourceError> {
    retrying(cancel, || match attempt() {
        Err(error @ SourceError::Network { .. }) => Ok(Err(error)),
        answer => answer.map(Ok),
    })?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tries(error: impl Fn() -> SourceError) -> u32 {
        let mut tries = 0;
        let result: Result<(), _> = retrying(&Cancel::default(), || {
            tries += 1;
            Err(error())
        });
        assert!(result.is_err());
        tries
    }

    #[test]
    fn only_what_passes_is_tried_again() {
        assert_eq!(tries(|| SourceError::NotFound { what: "x".into() }), 1);
        assert_eq!(tries(|| SourceError::Busy { status: 503, retry_after: None }), ATTEMPTS);
        let tomorrow = Some(Duration::from_secs(86_400));
        assert_eq!(tries(|| SourceError::Busy { status: 429, retry_after: tomorrow }), 1);
    }
}
