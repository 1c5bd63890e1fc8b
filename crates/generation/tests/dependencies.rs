//! What the crates between the API families and the engine must never know, read from their manifests.

/// Dependencies named by a manifest.
fn dependencies(manifest: &str) -> Vec<&str> {
    let named = manifest.split("[dependencies]").nth(1).unwrap_or_default();
    let named = named.split("\n[").next().unwrap_or_default();
    named
        .lines()
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .filter(|name| !name.is_empty())
        .collect()
}

#[test]
fn generation_has_no_http_and_derives_no_wire_types() {
    let known = dependencies(include_str!("../Cargo.toml"));
    assert!(known.contains(&"ropeway-engine"), "{known:?}");
    for foreign in ["axum", "hyper", "tokio", "serde", "utoipa", "ropeway-openai", "ropeway-server"] {
        assert!(!known.contains(&foreign), "{foreign}");
    }
}

#[test]
fn openais_wire_formats_have_no_http() {
    let known = dependencies(include_str!("../../openai/Cargo.toml"));
    assert!(known.contains(&"ropeway-generation"), "{known:?}");
    for foreign in ["axum", "hyper", "tokio", "ropeway-server"] {
        assert!(!known.contains(&foreign), "{foreign}");
    }
}
