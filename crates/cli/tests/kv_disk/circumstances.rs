//! Disks that are full or may not be written to, and clocks that jump.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::server::{Server, until};
use crate::support::{Sandbox, smollm2};
use crate::{Answer, BLOCKS, ask, end, filled, keeping, prompt, segments, start};

/// Starts a server after `mounts`, a shell script in a name space of its own that knows the folder as `$0`; `None` with a printed
/// reason where nothing can be mounted.
fn start_mounted(model: &str, folder: &Path, mounts: &str) -> Option<Server> {
    let unshared = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-e", "-c", script]).stdin(Stdio::null());
        command
    };
    let tried = unshared("mount -t tmpfs -o size=4k tmpfs /tmp").stderr(Stdio::null()).status();
    if !tried.is_ok_and(|status| status.success()) {
        eprintln!("skipped: this machine does not let a test mount file systems (unshare --map-root-user)");
        return None;
    }
    let sandbox = Sandbox::new();
    let alias = format!("m={model}");
    let mut command = unshared(&format!("{mounts}; exec \"$@\""));
    command.arg(folder).arg(env!("CARGO_BIN_EXE_ropeway"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--model", model, "--alias", &alias]);
    command.args(keeping(folder, "2GiB")).env("ROPEWAY_HOME", sandbox.path("home"));
    Some(Server::launch(sandbox, command))
}

fn warning(server: &Server) -> String {
    let (_, health) = server.request("GET", "/health", "");
    let health: Value = serde_json::from_str(&health).unwrap();
    health["warnings"][0].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_disk_that_gets_full_is_left_with_room_and_answers_go_on() {
    let Some(model) = smollm2() else { return };
    let home = Sandbox::new();
    let folder = home.path("kv");
    std::fs::create_dir(&folder).unwrap();
    // 2 GiB are to stay free.
    let mounted = start_mounted(&model, &folder, r#"mount -t tmpfs -o size=2072m tmpfs "$0""#);
    let Some(server) = mounted else { return };
    let first = ask(&server, &prompt(1));
    for number in 2..8 {
        ask(&server, &prompt(number));
    }
    until("it says that the disk is full", || warning(&server).contains("free"));
    assert_eq!(ask(&server, &prompt(1)).text, first.text);
    end(server);
}

#[test]
fn a_folder_that_may_not_be_written_to_is_read() {
    let Some(model) = smollm2() else { return };
    let home = Sandbox::new();
    let folder = home.path("kv");
    let first = filled(&model, &folder);
    let mounted = start_mounted(&model, &folder, r#"mount --bind "$0" "$0"; mount -o remount,ro,bind "$0""#);
    let Some(server) = mounted else { return };
    assert_eq!(ask(&server, &prompt(1)), Answer { cached: BLOCKS, text: first.text });
    assert!(warning(&server).contains("only read"), "{}", warning(&server));
    end(server);
}

/// A library that moves the clock of a program by as many seconds as a file says.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t which, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, which, now);
    if (which == CLOCK_REALTIME) {
        FILE *file = fopen(getenv("MOVED_BY"), "r");
        long seconds = 0;
        if (file) { if (fscanf(file, "%ld", &seconds) != 1) seconds = 0; fclose(file); }
        now->tv_sec += seconds;
    }
    return result;
}
"#;

/// Compiles [`CLOCK`]; its path.
fn clock(home: &Sandbox) -> String {
    let source = home.write("clock.c", CLOCK.as_bytes());
    let library = home.path("clock.so").display().to_string();
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o", &library, &source]).status();
    assert!(compiled.is_ok_and(|status| status.success()), "a C compiler is needed to build Ropeway, too");
    library
}

#[test]
#[cfg(target_os = "linux")]
fn a_clock_that_jumps_either_way_loses_nothing() {
    const YEAR: i64 = 365 * 86_400;
    let Some(model) = smollm2() else { return };
    let home = Sandbox::new();
    let (folder, library) = (home.path("kv"), clock(&home));
    let moved_by = home.write("moved-by", b"0");
    let move_by = |seconds: i64| std::fs::write(&moved_by, seconds.to_string()).unwrap();
    let begin = || {
        let environment = [("LD_PRELOAD", library.as_str()), ("MOVED_BY", moved_by.as_str())];
        Server::start_in(Sandbox::new(), &model, &keeping(&folder, "2GiB"), &environment)
    };
    let server = begin();
    let first = ask(&server, &prompt(1));
    for seconds in [YEAR, -20 * YEAR, 0] {
        move_by(seconds);
        assert_eq!(ask(&server, &prompt(1)).text, first.text);
        let (status, agents) = server.request("GET", "/v1/agents", "");
        assert_eq!(status, 200, "{agents}");
    }
    move_by(YEAR);
    end(server);
    // The files are from the future now.
    move_by(-YEAR);
    let server = begin();
    assert_eq!(ask(&server, &prompt(1)), Answer { cached: BLOCKS, text: first.text.clone() });
    end(server);
    let server = start(&model, &folder, &[]);
    assert_eq!(ask(&server, &prompt(1)), Answer { cached: BLOCKS, text: first.text });
    assert!(!segments(&folder).is_empty());
}
