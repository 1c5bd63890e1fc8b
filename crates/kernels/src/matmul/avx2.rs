//! Plain Rust.
pub(crate) use super::reference::panel;
