//! One upstream over real connections: a scripted server answers as each kind of server does, and fails as servers do.

mod description;
mod failures;
mod llama_server;
mod scripted;
mod sglang;
mod tls;
mod vllm;
