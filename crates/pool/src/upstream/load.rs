//! An upstream's own queue, out of its metrics page.

use crate::settings::Kind;

/// Requests that an upstream says it has, of all its clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportedLoad {
    /// Being computed.
    pub running: usize,
    /// In its own queue.
    pub waiting: usize,
}

/// Reads a page in Prometheus' format; `None` if it names no queue. Models and workers of one server are added up.
pub(super) fn read(kind: Kind, page: &[u8]) -> Option<ReportedLoad> {
    let (running, waiting) = match kind {
        Kind::Vllm => ("vllm:num_requests_running", "vllm:num_requests_waiting"),
        Kind::Sglang => ("sglang:num_running_reqs", "sglang:num_queue_reqs"),
        Kind::LlamaServer => ("llamacpp:requests_processing", "llamacpp:requests_deferred"),
        Kind::Ropeway => ("ropeway_num_requests_running", "ropeway_num_requests_waiting"),
        Kind::Ollama | Kind::Openai => return None,
    };
    let page = std::str::from_utf8(page).ok()?;
    Some(ReportedLoad { running: sum(page, running)?, waiting: sum(page, waiting)? })
}

/// The sum of all samples of a metric.
fn sum(page: &str, name: &str) -> Option<usize> {
    let values = page.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        // Either labels or the value follow; else it is a longer name.
        let value = match rest.strip_prefix('{') {
            Some(labelled) => labelled.rsplit_once('}')?.1,
            None => rest.strip_prefix(' ')?,
        };
        let value: f64 = value.split_whitespace().next()?.parse().ok()?;
        Some(value.max(0.0) as usize)
    });
    values.reduce(usize::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_all_workers_are_added_up_and_longer_names_are_not() {
        let page = "# HELP vllm:num_requests_running Running.\n\
                    vllm:num_requests_running{engine=\"0\",model_name=\"a}b\"} 3.0\n\
                    vllm:num_requests_running{engine=\"1\",model_name=\"m\"} 4.0\n\
                    vllm:num_requests_waiting{engine=\"0\"} 1.0\n\
                    vllm:num_requests_waiting_by_reason{reason=\"capacity\"} 9.0\n";
        let load = read(Kind::Vllm, page.as_bytes());
        assert_eq!(load, Some(ReportedLoad { running: 7, waiting: 1 }));
    }

    #[test]
    fn values_without_labels_are_read() {
        let page = b"llamacpp:requests_processing 2\nllamacpp:requests_deferred 5\n";
        assert_eq!(read(Kind::LlamaServer, page), Some(ReportedLoad { running: 2, waiting: 5 }));
    }

    #[test]
    fn a_page_without_a_queue_is_no_empty_queue() {
        assert_eq!(read(Kind::Vllm, b"python_info 1\n"), None);
        assert_eq!(read(Kind::Openai, b"vllm:num_requests_running 1\n"), None);
    }
}
