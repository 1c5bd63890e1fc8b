//! Where keys and values are kept on disk.

use std::env;
use std::path::PathBuf;

use ropeway_hub::Config;

use crate::failure::Failure;

/// Names another folder, as `--kv-disk-dir` does.
const VARIABLE: &str = "ROPEWAY_KV_DISK_DIR";

/// The folder that is used unless a command line names another: beside the models.
pub fn kv_disk_dir() -> Result<PathBuf, Failure> {
    match env::var_os(VARIABLE).filter(|dir| !dir.is_empty()) {
        Some(dir) => Ok(dir.into()),
        None => Ok(Config::from_env()?.home.join("kv")),
    }
}
