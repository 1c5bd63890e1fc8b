//! The exact bodies that Ollama's Go client sends (`api/types.go`: every field without `omitempty` is there, empty or not),
//! call by call of its command line (`cmd/cmd.go`).

use axum::http::Method;
use serde_json::{Value, json};

use crate::disk;

/// One call.
struct Call {
    /// Which command makes it.
    made_by: &'static str,
    method: Method,
    path: &'static str,
    /// Nothing for requests without a body.
    body: &'static str,
    status: u16,
    /// What the command reads from the answer's last line: a JSON pointer and its value.
    reads: Option<(&'static str, Value)>,
}

fn call(
    made_by: &'static str,
    (method, path): (Method, &'static str),
    body: &'static str,
    (status, reads): (u16, Option<(&'static str, Value)>),
) -> Call {
    Call { made_by, method, path, body, status, reads }
}

const POST: Method = Method::POST;
const GET: Method = Method::GET;

/// Before anything is loaded.
fn beginning() -> Vec<Call> {
    vec![
        call("checkServerHeartbeat, of every command", (Method::HEAD, "/"), "", (200, None)),
        call("versionHandler", (GET, "/api/version"), "", (200, Some(("/version", json!("0.32.15"))))),
        call(
            "cloud status, of the menu",
            (GET, "/api/status"),
            "",
            (200, Some(("/cloud/disabled", json!(true)))),
        ),
        call("ListHandler", (GET, "/api/tags"), "", (200, Some(("/models/0/name", json!("here:1b"))))),
        call("ListRunningHandler", (GET, "/api/ps"), "", (200, Some(("/models", json!([]))))),
        call(
            "PullHandler",
            (POST, "/api/pull"),
            r#"{"model":"","username":"","password":"","name":"here:1b"}"#,
            (200, Some(("/status", json!("success")))),
        ),
        call(
            "ShowHandler",
            (POST, "/api/show"),
            r#"{"model":"","system":"","template":"","verbose":false,"options":null,"name":"here:1b"}"#,
            (200, Some(("/model_info/general.architecture", json!("llama")))),
        ),
        call(
            "RunHandler and loadOrUnloadModel, first",
            (POST, "/api/show"),
            r#"{"model":"here:1b","system":"","template":"","verbose":false,"options":null,"name":""}"#,
            (200, Some(("/details/family", json!("llama")))),
        ),
        call(
            "RunHandler for a model that is not there: 404 makes it pull",
            (POST, "/api/show"),
            r#"{"model":"nowhere","system":"","template":"","verbose":false,"options":null,"name":""}"#,
            (404, None),
        ),
        call(
            "DeleteHandler and StopHandler of a model that is not loaded",
            (POST, "/api/generate"),
            r#"{"model":"here:1b","prompt":"","suffix":"","system":"","template":"","keep_alive":"0s","options":null}"#,
            (200, Some(("/done_reason", json!("unload")))),
        ),
    ]
}

/// With a model in memory, from its loading on.
fn middle() -> Vec<Call> {
    vec![
        call(
            "loadOrUnloadModel",
            (POST, "/api/generate"),
            r#"{"model":"here:1b","prompt":"","suffix":"","system":"","template":"","options":null}"#,
            (200, Some(("/done_reason", json!("load")))),
        ),
        call(
            "a client without messages, which has the same meaning",
            (POST, "/api/chat"),
            r#"{"model":"here:1b","messages":null,"options":null}"#,
            (200, Some(("/done_reason", json!("load")))),
        ),
        call("ListRunningHandler", (GET, "/api/ps"), "", (200, Some(("/models/0/name", json!("here:1b"))))),
        call(
            "loadOrUnloadModel of `ollama run --think`",
            (POST, "/api/generate"),
            r#"{"model":"here:1b","prompt":"","suffix":"","system":"","template":"","options":null,"think":true}"#,
            (400, None),
        ),
        call(
            "generate, of `ollama run here:1b hi`",
            (POST, "/api/generate"),
            r#"{"model":"here:1b","prompt":"hi","suffix":"","system":"","template":"","options":{}}"#,
            (200, Some(("/done", json!(true)))),
        ),
        call(
            "generate with --format json, --keepalive 5m and --think=false",
            (POST, "/api/generate"),
            r#"{"model":"here:1b","prompt":"hi","suffix":"","system":"Be brief.","template":"","format":"json","keep_alive":"5m0s","options":{"num_predict":4,"num_ctx":100000},"think":false}"#,
            (200, Some(("/done", json!(true)))),
        ),
        call(
            "chat, of `ollama run`",
            (POST, "/api/chat"),
            r#"{"model":"here:1b","messages":[{"role":"user","content":"hi"}],"options":{"num_predict":4}}"#,
            (200, Some(("/eval_count", json!(4)))),
        ),
        call(
            "a Go program with every field of a chat",
            (POST, "/api/chat"),
            r#"{"model":"here:1b","messages":[{"role":"User","content":"hi"},{"role":"assistant","content":"","tool_calls":[{"function":{"index":0,"name":"f","arguments":{}}}]},{"role":"tool","content":"1","tool_name":"f"}],"stream":false,"keep_alive":-1,"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{}}}}],"options":{"num_predict":2,"num_gpu":1,"stop":["x"]},"truncate":true,"shift":true,"logprobs":true,"top_logprobs":2}"#,
            (200, Some(("/done", json!(true)))),
        ),
        call(
            "generateEmbedding, where nothing embeds",
            (POST, "/api/embed"),
            r#"{"model":"all-minilm","input":"hi","options":null}"#,
            (404, None),
        ),
        call(
            "a Go program of old, where nothing embeds",
            (POST, "/api/embeddings"),
            r#"{"model":"all-minilm","prompt":"hi","options":null}"#,
            (404, None),
        ),
    ]
}

/// What changes models.
fn end() -> Vec<Call> {
    vec![
        call(
            "CreateHandler, of a Modelfile with FROM, SYSTEM and PARAMETER",
            (POST, "/api/create"),
            r#"{"model":"mario","from":"here:1b","system":"You are Mario.","parameters":{"num_predict":3,"stop":["!"]},"name":""}"#,
            (200, Some(("/status", json!("success")))),
        ),
        call(
            "CopyHandler",
            (POST, "/api/copy"),
            r#"{"source":"here:1b","destination":"gpt-4o"}"#,
            (200, None),
        ),
        call(
            "PushHandler",
            (POST, "/api/push"),
            r#"{"model":"","username":"","password":"","name":"here:1b"}"#,
            (403, None),
        ),
        call(
            "StopHandler",
            (POST, "/api/generate"),
            r#"{"model":"here:1b","prompt":"","suffix":"","system":"","template":"","keep_alive":"0s","options":null}"#,
            (200, Some(("/done_reason", json!("unload")))),
        ),
        call("DeleteHandler", (Method::DELETE, "/api/delete"), r#"{"model":"","name":"mario"}"#, (200, None)),
        call(
            "DeleteHandler",
            (Method::DELETE, "/api/delete"),
            r#"{"model":"","name":"here:1b"}"#,
            (200, None),
        ),
    ]
}

#[tokio::test]
async fn every_call_of_ollamas_command_line_is_answered_as_it_expects() {
    let Some((app, _)) = disk::app(false) else { return };
    for call in beginning().into_iter().chain(middle()).chain(end()) {
        let body =
            if call.body.is_empty() { Value::Null } else { serde_json::from_str(call.body).expect("JSON") };
        let (status, answer) = disk::send(&app, call.method, call.path, body).await;
        assert_eq!(status, call.status, "{}: {answer}", call.made_by);
        if let Some((pointer, value)) = call.reads {
            assert_eq!(answer.pointer(pointer), Some(&value), "{}: {answer}", call.made_by);
        }
        if status >= 400 {
            assert!(answer["error"].is_string(), "{}: {answer}", call.made_by);
        }
        if status == 404 {
            let told = answer["error"].as_str().expect("a text");
            assert!(told.contains("not found") || told.contains("no embedding model"), "{told}");
        }
    }
}

#[tokio::test]
async fn rows_of_models_have_what_the_command_line_slices_and_prints() {
    let Some((app, _)) = disk::app(false) else { return };
    disk::ask(&app, "/api/generate", json!({"model": "here:1b"})).await;
    disk::ask(&app, "/api/create", json!({"model": "mario", "from": "here"})).await;
    for path in ["/api/tags", "/api/ps"] {
        let (_, answer) = disk::send(&app, GET, path, Value::Null).await;
        for row in answer["models"].as_array().expect("a list") {
            let digest = row["digest"].as_str().expect("a text");
            assert!(digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()), "{row}");
            assert!(row["size"].is_u64() && row["details"]["families"].is_array(), "{row}");
            assert!(row["modified_at"].as_str().is_some_and(|time| time.ends_with('Z')), "{row}");
            if path == "/api/ps" {
                assert!(row["expires_at"].as_str().is_some_and(|time| time.ends_with('Z')), "{row}");
                assert!(row["size_vram"].is_u64() && row["context_length"].is_u64(), "{row}");
            }
        }
    }
}
