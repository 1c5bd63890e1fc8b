//! Sharded folders: `model.safetensors.index.json` says which file holds which tensor.
//!
//! The index is the truth about names: tensors of a shard it does not list are left out. A shard is a plain file name;
//! anything that could lead out of the folder is refused before a file is touched.

use super::{INDEX, Shards, read_json};
use crate::{IndexError, WeightsError};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Component, Path};

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Opens every shard the index names.
pub(super) fn open(folder: &Path) -> Result<Shards, WeightsError> {
    let path = folder.join(INDEX);
    let index: Index = read_json(&path)?;
    let broken = |source| WeightsError::Index { path: path.clone(), source };
    let mut shards = Shards::default();
    for (shard, tensors) in by_shard(index).map_err(broken)? {
        let mut held = shards.open(&folder.join(&shard))?;
        for tensor in tensors {
            let Some(raw) = held.remove(&tensor) else {
                return Err(broken(IndexError::NotInShard { tensor, shard }));
            };
            shards.raw.insert(tensor, raw);
        }
    }
    Ok(shards)
}

/// The tensors of each shard.
fn by_shard(index: Index) -> Result<BTreeMap<String, Vec<String>>, IndexError> {
    let mut shards = BTreeMap::<String, Vec<String>>::new();
    for (tensor, shard) in index.weight_map {
        if !is_plain_name(&shard) {
            return Err(IndexError::OutsideFolder { tensor, shard });
        }
        shards.entry(shard).or_default().push(tensor);
    }
    if shards.is_empty() { Err(IndexError::Empty) } else { Ok(shards) }
}

fn is_plain_name(shard: &str) -> bool {
    let mut parts = Path::new(shard).components();
    let plain = matches!(parts.next(), Some(Component::Normal(name)) if name == shard);
    plain && parts.next().is_none()
}
