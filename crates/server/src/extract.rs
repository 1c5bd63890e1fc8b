//! From a body to a wire type, with errors that say where.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::de::DeserializeOwned;

use crate::error::{ApiError, Kind};

/// A body as axum hands it over.
pub type Body = Result<Bytes, BytesRejection>;

/// Reads a JSON body. Whatever the content type says: clients forget it.
pub fn json<T: DeserializeOwned>(body: Body) -> Result<T, ApiError> {
    let bytes = body.map_err(unread)?;
    serde_json::from_slice(&bytes)
        .map_err(|error| ApiError::invalid(format!("the body can't be read: {error}")).coded("invalid_json"))
}

fn unread(rejection: BytesRejection) -> ApiError {
    let text = rejection.body_text();
    if rejection.into_response().status() == StatusCode::PAYLOAD_TOO_LARGE {
        return ApiError::new(Kind::TooLarge, "the body is larger than this server reads; send less");
    }
    ApiError::invalid(format!("the body could not be received: {text}"))
}
