//! How much a model is to think, as chat templates know it.

use serde_json::{Map, Value};

use crate::error::RequestError;

/// What clients may wish for, and what templates that listen to an effort know of it.
const EFFORTS: [(&str, Option<&str>); 7] = [
    ("none", None),
    ("minimal", Some("low")),
    ("low", Some("low")),
    ("medium", Some("medium")),
    ("high", Some("high")),
    ("xhigh", Some("high")),
    ("max", Some("high")),
];

/// Template variables for a wished effort: models whose thinking can be switched listen to `enable_thinking`, some to how
/// much of it is asked for.
pub fn effort_variables(effort: Option<&str>) -> Result<Map<String, Value>, RequestError> {
    let mut variables = Map::new();
    let Some(effort) = effort else { return Ok(variables) };
    let Some((_, known)) = EFFORTS.iter().find(|(name, _)| *name == effort) else {
        let names = EFFORTS.map(|(name, _)| name).join(", ");
        return Err(RequestError::invalid(format!("the effort of reasoning is one of {names}"))
            .at("reasoning_effort"));
    };
    variables.insert("enable_thinking".into(), known.is_some().into());
    variables.extend(known.map(|known| ("reasoning_effort".to_owned(), known.into())));
    Ok(variables)
}
