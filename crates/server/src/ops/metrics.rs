//! `GET /metrics`: the engines' own figures in Prometheus' text format. Names follow vLLM's where the meaning is the
//! same.

use std::fmt::Write;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use ropeway_batcher::Totals;
use ropeway_engine::metrics::{Experience, FINISHES, Histogram, Metrics, SECONDS};
use ropeway_engine::{Class, Load};
use ropeway_grammar::Stats;

use super::{kv_disk, upstreams};
use crate::app::Shared;

pub async fn show(State(app): State<Shared>) -> impl IntoResponse {
    let engines: Vec<_> = app
        .models
        .all()
        .iter()
        .filter_map(|model| {
            let engine = model.engine();
            let (board, grammars) = (engine.board()?, &model.generator.token_model().ok()?.grammars);
            Some((model.name.clone(), board.metrics(), grammars.stats()))
        })
        .collect();
    let embedders: Vec<_> = app
        .embeddings
        .all()
        .iter()
        .filter_map(|model| Some((model.name.clone(), model.loaded()?.embedder.totals())))
        .collect();
    let tiers: Vec<_> = engines.iter().map(|(model, metrics, ..)| (model.clone(), metrics.tier)).collect();
    let area = app.disk.as_ref().map(|disk| kv_disk::area(&disk.status()));
    let upstreams = app.pools.get().map(|pools| upstreams::metrics(pools));
    let loads: Vec<_> =
        app.models.all().iter().map(|model| (model.name.clone(), model.engine().load())).collect();
    let page = requests(&loads)
        + &page(&engines)
        + &embedding(&embedders)
        + &kv_disk::transfers(&tiers)
        + area.as_deref().unwrap_or_default()
        + upstreams.as_deref().unwrap_or_default();
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page)
}

/// What every model holds, whether an engine here computes it or another server.
fn requests(loads: &[(String, Load)]) -> String {
    let mut page = String::new();
    let mut one = |name: &str, help: &str, value: &dyn Fn(&Load) -> usize| {
        let _ = writeln!(page, "# HELP ropeway_{name} {help}\n# TYPE ropeway_{name} gauge");
        for (model, load) in loads {
            let _ = writeln!(page, "ropeway_{name}{{model_name=\"{}\"}} {}", escaped(model), value(load));
        }
    };
    one("num_requests_running", "Sequences in the batch, or at other servers.", &|load| load.running);
    one("num_requests_waiting", "Requests without a place there.", &|load| load.queued);
    page
}

/// Embedding models that are loaded.
fn embedding(embedders: &[(String, Totals)]) -> String {
    let mut page = String::new();
    let mut one = |kind: &str, name: &str, help: &str, value: &dyn Fn(&Totals) -> f64| {
        let _ =
            writeln!(page, "# HELP ropeway_embedding_{name} {help}\n# TYPE ropeway_embedding_{name} {kind}");
        for (model, totals) in embedders {
            let (model, value) = (escaped(model), value(totals));
            let _ = writeln!(page, "ropeway_embedding_{name}{{model_name=\"{model}\"}} {value}");
        }
    };
    one("gauge", "waiting", "Texts that wait for a batch.", &|t| t.waiting as f64);
    one("counter", "batches_total", "Batches computed.", &|t| t.batches as f64);
    one("counter", "texts_total", "Texts computed.", &|t| t.jobs as f64);
    one("counter", "tokens_total", "Tokens computed.", &|t| t.tokens as f64);
    one("counter", "failed_total", "Texts that failed.", &|t| t.failed as f64);
    one("counter", "cancelled_total", "Texts nobody waited for any more.", &|t| t.cancelled as f64);
    one("counter", "rejected_total", "Texts turned down because too many waited.", &|t| t.rejected as f64);
    one("counter", "seconds_total", "Time spent computing.", &|t| t.busy.as_secs_f64());
    page
}

/// Its model, its figures, and what was compiled for it.
type Engine = (String, Metrics, Stats);

/// One of the distributions.
type Of = fn(&Experience) -> &Histogram;

fn page(engines: &[Engine]) -> String {
    let mut page = String::new();
    let mut one = |kind: &str, name: &str, help: &str, value: &dyn Fn(&Engine) -> f64| {
        let _ = writeln!(page, "# HELP ropeway_{name} {help}\n# TYPE ropeway_{name} {kind}");
        for engine in engines {
            let _ =
                writeln!(page, "ropeway_{name}{{model_name=\"{}\"}} {}", escaped(&engine.0), value(engine));
        }
    };
    one("gauge", "slot_usage_ratio", "Share of the batch's rows in use.", &|(_, m, ..)| m.slot_use);
    one("gauge", "kv_cache_usage_ratio", "Share of the KV blocks in use.", &|(_, m, ..)| m.kv_use);
    one("counter", "requests_total", "Requests taken in.", &|(_, m, ..)| m.requests as f64);
    one("counter", "steps_total", "Steps computed.", &|(_, m, ..)| m.steps as f64);
    one("counter", "step_seconds_total", "Time spent in steps.", &|(_, m, ..)| m.busy.as_secs_f64());
    one("counter", "step_compute_seconds_total", "Time steps took to compute.", &|(_, m, ..)| {
        m.computing.as_secs_f64()
    });
    one("counter", "step_device_seconds_total", "Time the device itself took for them.", &|(_, m, ..)| {
        m.device.as_secs_f64()
    });
    one("counter", "step_host_seconds_total", "Time to plan, launch and commit steps.", &|(_, m, ..)| {
        m.host.as_secs_f64()
    });
    one("counter", "step_predicted_seconds_total", "What that was predicted to take.", &|(_, m, ..)| {
        m.predicted.as_secs_f64()
    });
    one("counter", "mispredicted_steps_total", "Steps over 20 % off their prediction.", &|(_, m, ..)| {
        m.mispredicted_steps as f64
    });
    one("counter", "prompt_tokens_total", "Prompt tokens, computed or cached.", &|(_, m, ..)| {
        (m.prefill_tokens + m.cached_tokens) as f64
    });
    one("counter", "generation_tokens_total", "Tokens generated.", &|(_, m, ..)| m.generated_tokens as f64);
    one("counter", "prefix_cache_queries_total", "Prompt tokens looked up.", &|(_, m, ..)| {
        (m.prefill_tokens + m.cached_tokens) as f64
    });
    one("counter", "prefix_cache_hits_total", "Prompt tokens found in the cache.", &|(_, m, ..)| {
        m.cached_tokens as f64
    });
    one("counter", "preemptions_total", "Sequences preempted.", &|(_, m, ..)| m.preemptions as f64);
    one("counter", "spec_decode_num_drafts_total", "Drafts, one per stream and step.", &|(_, m, ..)| {
        m.drafts as f64
    });
    one("counter", "spec_decode_num_draft_tokens_total", "Tokens drafted.", &|(_, m, ..)| {
        m.drafted_tokens as f64
    });
    one("counter", "spec_decode_num_accepted_tokens_total", "Drafted tokens that were right.", &|(
        _,
        m,
        ..,
    )| {
        m.accepted_tokens as f64
    });
    one("counter", "failed_steps_total", "Steps that failed and were computed in parts.", &|(_, m, ..)| {
        m.failed_steps as f64
    });
    one("counter", "device_restarts_total", "Times the device was lost and restarted.", &|(_, m, ..)| {
        m.restarts as f64
    });
    one(
        "counter",
        "step_wait_seconds_total",
        "Time that steps waited for cores that other models had.",
        &|(_, m, ..)| m.waited.as_secs_f64(),
    );
    one("counter", "guided_tokens_total", "Tokens chosen among what a grammar allowed.", &|(_, m, ..)| {
        m.guided_tokens as f64
    });
    one("counter", "forced_tokens_total", "Tokens that a grammar forced.", &|(_, m, ..)| {
        m.forced_tokens as f64
    });
    one("counter", "grammar_mask_seconds_total", "Time for masks, on all threads together.", &|(
        _,
        m,
        ..,
    )| {
        m.guiding.as_secs_f64()
    });
    one("counter", "grammars_compiled_total", "Grammars compiled.", &|(.., g)| g.compiled as f64);
    one("counter", "grammars_rejected_total", "Grammars turned down.", &|(.., g)| g.rejected as f64);
    one("counter", "grammar_cache_hits_total", "Grammars found compiled.", &|(.., g)| g.hits as f64);
    one("counter", "grammar_compile_seconds_total", "Time spent compiling.", &|(.., g)| {
        g.compiling.as_secs_f64()
    });
    one("gauge", "grammar_compile_seconds_max", "Longest time one took.", &|(.., g)| g.longest.as_secs_f64());
    accepted_by_position(&mut page, engines);
    finished(&mut page, engines);
    let histograms: [(&str, &str, Of); 4] = [
        ("time_to_first_token_seconds", "From submission to the first token.", |e| &e.first_token),
        ("inter_token_latency_seconds", "Between two tokens of a stream.", |e| &e.inter_token),
        ("request_queue_time_seconds", "From submission to the first step.", |e| &e.queued),
        ("e2e_request_latency_seconds", "From submission to the end.", |e| &e.total),
    ];
    for (name, help, of) in histograms {
        histogram(&mut page, name, help, engines, of);
    }
    page
}

/// Positions count from 0, as vLLM's do; the last one stands for those behind it too.
fn accepted_by_position(page: &mut String, engines: &[Engine]) {
    let name = "ropeway_spec_decode_num_accepted_tokens_per_pos_total";
    let help = "Drafted tokens that were right, by their place in the draft.";
    let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} counter");
    for (model, metrics, ..) in engines {
        for (position, count) in metrics.accepted_at.iter().enumerate() {
            let model = escaped(model);
            let _ = writeln!(page, "{name}{{model_name=\"{model}\",position=\"{position}\"}} {count}");
        }
    }
}

fn finished(page: &mut String, engines: &[Engine]) {
    let name = "ropeway_request_success_total";
    let _ = writeln!(page, "# HELP {name} Sequences that ended, by reason.\n# TYPE {name} counter");
    for (model, metrics, ..) in engines {
        for (class, experience) in Class::ALL.iter().zip(&metrics.classes) {
            for (reason, count) in FINISHES.iter().zip(experience.finished) {
                let labels = labels(model, *class);
                let _ = writeln!(page, "{name}{{{labels},finished_reason=\"{reason}\"}} {count}");
            }
        }
    }
}

fn histogram(page: &mut String, name: &str, help: &str, engines: &[Engine], of: Of) {
    let _ = writeln!(page, "# HELP ropeway_{name} {help}\n# TYPE ropeway_{name} histogram");
    for (model, metrics, ..) in engines {
        for (class, experience) in Class::ALL.iter().zip(&metrics.classes) {
            let (histogram, labels) = (of(experience), labels(model, *class));
            let mut below = 0;
            for (end, count) in SECONDS.iter().zip(histogram.counts) {
                below += count;
                let _ = writeln!(page, "ropeway_{name}_bucket{{{labels},le=\"{end}\"}} {below}");
            }
            let count = histogram.count();
            let _ = writeln!(page, "ropeway_{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
            let _ = writeln!(page, "ropeway_{name}_sum{{{labels}}} {}", histogram.sum);
            let _ = writeln!(page, "ropeway_{name}_count{{{labels}}} {count}");
        }
    }
}

fn labels(model: &str, class: Class) -> String {
    format!("model_name=\"{}\",priority=\"{}\"", escaped(model), class.name())
}

/// Text as a label may hold it.
pub fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
