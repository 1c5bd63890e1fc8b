//! `cache`: what is kept of conversations on disk.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use ropeway_kvdisk::{Disk, Options, ShelfSpec, Stored};
use serde_json::{Value, json};
use support::Sandbox;

/// One test at a time: a process that another test starts has this one's open files for a moment, and with them the lock of
/// its folder.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const BLOCK_BYTES: usize = 4096;

/// Blocks of two models in the folder that commands look at by themselves.
fn filled(sandbox: &Sandbox) -> PathBuf {
    let dir = sandbox.path("home/kv");
    let disk = open(&dir);
    store(&disk, "small:1b f16", 3);
    store(&disk, "large:7b q8", 5);
    fs::create_dir(dir.join("agents")).unwrap();
    disk.close(Duration::from_secs(10));
    dir
}

fn open(dir: &Path) -> Disk {
    Disk::open(Options { floor: 0, ..Options::new(dir, 64 << 20) }).unwrap()
}

fn store(disk: &Disk, label: &str, blocks: u8) {
    let identity = [label.len() as u8; 32];
    let spec = ShelfSpec { identity, label: label.into(), block_bytes: BLOCK_BYTES, block_tokens: 16 };
    let shelf = disk.shelf(spec);
    for number in 0..blocks {
        assert_eq!(shelf.store([number; 32], |bytes| bytes.fill(number)), Stored::Queued);
    }
    shelf.pin("an agent", &[[0; 32]], SystemTime::now() + Duration::from_secs(600));
    assert!(disk.flush(Duration::from_secs(10)));
}

fn json(sandbox: &Sandbox, arguments: &[&str]) -> Value {
    serde_json::from_str(&sandbox.run(arguments).ok()).unwrap()
}

#[test]
fn a_folder_that_is_not_there_is_empty() {
    let _alone = alone();
    let sandbox = Sandbox::new();
    assert!(sandbox.run(&["cache", "list"]).ok().starts_with("nothing is kept in "));
    assert_eq!(json(&sandbox, &["cache", "stats", "--json"])["blocks"], 0);
    assert_eq!(sandbox.run(&["cache", "verify"]).ok(), "0 blocks are good (0 B)\n");
    assert!(sandbox.run(&["cache", "clear"]).ok().starts_with("removed 0 blocks"));
    assert!(!sandbox.path("home/kv").exists());
}

#[test]
fn what_is_kept_is_told_by_model_and_in_all() {
    let _alone = alone();
    let sandbox = Sandbox::new();
    let dir = filled(&sandbox);
    let stats = json(&sandbox, &["cache", "stats", "--json"]);
    let expected =
        json!({ "dir": dir, "in_use": false, "models": 2, "blocks": 8, "tokens": 128, "foreign": [] });
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&stats[field], value, "{field}");
    }
    assert_eq!(stats["bytes"], 8 * BLOCK_BYTES);
    assert_eq!(json(&sandbox, &["cache", "stats", "--json", "small"])["tokens"], 48);
    let list = json(&sandbox, &["cache", "list", "--json"]);
    let rows = list["models"].as_array().unwrap();
    let row = |row: &Value| (row["model"].clone(), row["tokens"].clone(), row["pinned_blocks"].clone());
    assert_eq!(
        rows.iter().map(row).collect::<Vec<_>>(),
        [(json!("large:7b q8"), json!(80), json!(1)), (json!("small:1b f16"), json!(48), json!(1))]
    );
    let out = sandbox.run(&["cache", "list"]).ok();
    assert!(out.contains("MODEL") && out.contains("large:7b q8") && out.contains("just now"), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
    let out = sandbox.run(&["cache", "stats", "--dir", &dir.display().to_string()]).ok();
    assert!(out.contains("tokens  128 in 8 blocks") && out.contains("not in use"), "{out}");
}

#[test]
fn it_works_while_a_server_has_the_folder() {
    let _alone = alone();
    let sandbox = Sandbox::new();
    let dir = filled(&sandbox);
    let disk = open(&dir);
    assert_eq!(json(&sandbox, &["cache", "stats", "--json"])["in_use"], true);
    assert!(sandbox.run(&["cache", "verify"]).ok().starts_with("8 blocks are good"));
    assert!(sandbox.run(&["cache", "clear"]).ok().starts_with("removed 8 blocks"));
    assert!(disk.refresh(Duration::from_secs(10)));
    assert_eq!(disk.status().stock.blocks, 0);
    store(&disk, "small:1b f16", 3);
    disk.close(Duration::from_secs(10));
    assert_eq!(json(&sandbox, &["cache", "stats", "--json"])["blocks"], 3);
}

#[test]
fn one_model_is_cleared_and_the_other_stays() {
    let _alone = alone();
    let sandbox = Sandbox::new();
    filled(&sandbox);
    let cleared = json(&sandbox, &["cache", "clear", "large", "--json"]);
    assert_eq!(cleared["blocks"], 5);
    assert!(cleared["bytes"].as_u64().unwrap() >= 5 * BLOCK_BYTES as u64);
    let list = json(&sandbox, &["cache", "list", "--json"]);
    assert_eq!(list["models"].as_array().unwrap().len(), 1);
    assert!(sandbox.path("home/kv/agents").exists(), "agents are no cache");
}

#[test]
fn a_damaged_block_is_found_and_can_be_removed() {
    let _alone = alone();
    let sandbox = Sandbox::new();
    let dir = filled(&sandbox);
    damage(&dir);
    let ran = sandbox.run(&["cache", "verify"]);
    assert_eq!(ran.code, Some(1), "{}", ran.out);
    assert!(ran.out.contains("7 blocks are good") && ran.out.contains("damaged"), "{}", ran.out);
    assert!(ran.err.contains("cache verify --remove"), "{}", ran.err);
    assert!(sandbox.run(&["cache", "verify", "--remove"]).ok().contains("damaged, removed"));
    assert!(sandbox.run(&["cache", "verify"]).ok().starts_with("7 blocks are good"));
}

/// Changes a byte of a block of threes.
fn damage(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let Ok(mut bytes) = fs::read(&path) else { continue };
        if let Some(place) =
            bytes.windows(BLOCK_BYTES).position(|window| window.iter().all(|byte| *byte == 3))
        {
            bytes[place + BLOCK_BYTES / 2] ^= 1;
            fs::write(&path, bytes).unwrap();
            return;
        }
    }
    panic!("there is such a block");
}
