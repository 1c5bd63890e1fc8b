//! Workloads that people have.

use ropeway_engine::Class;

use super::workload::{Kind, Length, Visit, Workload};

/// A workload with a name.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is like.
    pub about: &'static str,
    workload: fn() -> Workload,
}

impl Preset {
    /// Finds a preset by its name.
    pub fn find(name: &str) -> Option<Preset> {
        PRESETS.into_iter().find(|preset| preset.name == name)
    }

    /// Its workload.
    pub fn workload(&self) -> Workload {
        (self.workload)()
    }
}

/// The presets there are.
pub const PRESETS: [Preset; 5] = [
    Preset {
        name: "chat",
        about: "people chatting: a few hundred tokens in, some dozens out",
        workload: chat,
    },
    Preset {
        name: "agent-trio",
        about: "an agent's three requests at once: 85, 113 and 7,600 tokens, beside people chatting",
        workload: agent_trio,
    },
    Preset {
        name: "extraction-burst",
        about: "18 structured extractions at once, with a shared prompt of 600 tokens",
        workload: extraction_burst,
    },
    Preset { name: "mixed", about: "chat (interactive), an API (default) and a bulk job", workload: mixed },
    Preset { name: "overload", about: "mixed, at half again what the machine can do", workload: overload },
];

const CHAT: Kind = Kind {
    class: Class::Default,
    count: 1,
    shared: 64,
    prompt: Length::around(120),
    answer: Length::around(50),
};

const fn exact(prompt: u32, answer: u32) -> Kind {
    Kind {
        class: Class::Default,
        count: 1,
        shared: 0,
        prompt: Length::exactly(prompt),
        answer: Length::exactly(answer),
    }
}

fn chat() -> Workload {
    Workload { visits: vec![Visit { weight: 1.0, kinds: vec![CHAT] }], load: 0.7, clients: 100 }
}

fn agent_trio() -> Workload {
    // The long one comes first: whoever serves in order of arrival lets the short ones wait for it.
    let trio = vec![exact(7600, 64), exact(85, 64), exact(113, 64)];
    let visits = vec![Visit { weight: 1.0, kinds: trio }, Visit { weight: 10.0, kinds: vec![CHAT] }];
    Workload { visits, load: 0.7, clients: 20 }
}

fn extraction_burst() -> Workload {
    let prompt = Length { median: 300.0, spread: 0.5 };
    let answer = Length { median: 80.0, spread: 0.3 };
    let burst = Kind { class: Class::Default, count: 18, shared: 600, prompt, answer };
    let visits = vec![Visit { weight: 1.0, kinds: vec![burst] }, Visit { weight: 10.0, kinds: vec![CHAT] }];
    Workload { visits, load: 0.7, clients: 20 }
}

fn mixed() -> Workload {
    let interactive = Kind { class: Class::Interactive, ..CHAT };
    let api = Kind { prompt: Length::around(500), answer: Length::around(80), ..CHAT };
    let bulk = Kind {
        class: Class::Bulk,
        count: 20,
        shared: 0,
        prompt: Length::around(800),
        answer: Length::exactly(150),
    };
    let visits = vec![
        Visit { weight: 60.0, kinds: vec![interactive] },
        Visit { weight: 30.0, kinds: vec![api] },
        Visit { weight: 1.0, kinds: vec![bulk] },
    ];
    Workload { visits, load: 0.7, clients: 50 }
}

fn overload() -> Workload {
    Workload { load: 1.5, ..mixed() }
}
