//! Panics that are caught by design: those inside of a library that is called within `catch_unwind`, which make an error of
//! one request. They do not end a run, as any other panic does. Each is printed.

/// The crates in which grammars are compiled.
pub const GRAMMARS: &[&str] = &["/llguidance-", "/derivre-", "/toktrie-"];

/// The crate in which templates run.
pub const TEMPLATES: &[&str] = &["/minijinja-"];

/// Goes on after panics inside of these crates.
pub fn ignore_inside(crates: &'static [&'static str]) {
    let stop = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map_or("", |location| location.file());
        if crates.iter().any(|inside| place.contains(inside)) {
            eprintln!("CAUGHT: {panic}");
        } else {
            stop(panic);
        }
    }));
}
