//! Schemas as programs write them (`schemas.json`): those of a knowledge-graph pipeline (Graphiti's Pydantic models), and
//! one for every shape that Pydantic, zod and people come up with.

use serde_json::Value;

/// What Graphiti asks for while it takes in an episode, as Pydantic writes it.
pub fn graphiti() -> Vec<(String, Value)> {
    named("graphiti")
}

/// All of them, each under a name.
pub fn all() -> Vec<(String, Value)> {
    [named("graphiti"), named("shapes")].concat()
}

fn named(group: &str) -> Vec<(String, Value)> {
    let groups: Value = serde_json::from_str(include_str!("schemas.json")).expect("JSON");
    let group = groups[group].as_object().expect("a group");
    group.iter().map(|(name, schema)| (name.clone(), schema.clone())).collect()
}
