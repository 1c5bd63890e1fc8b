//! `GET /v1/models` in Anthropic's shape.

use serde_json::{Value, json};

use crate::model::Visible;
use crate::time;

/// The models, for clients that send `anthropic-version`.
pub fn list(visible: &Visible<'_>) -> Value {
    let models = visible.all();
    let data: Vec<_> = models
        .iter()
        .map(|model| {
            json!({
                "type": "model",
                "id": model.name,
                "display_name": model.name,
                "created_at": time::rfc3339(model.created),
            })
        })
        .collect();
    let (first, last) = (models.first().map(|m| &m.name), models.last().map(|m| &m.name));
    json!({ "data": data, "has_more": false, "first_id": first, "last_id": last })
}
