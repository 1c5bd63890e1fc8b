//! What segments don't say: when blocks were last used, which are forgotten, what is pinned.
//!
//! Nothing depends on it: without it, or with an older one, blocks count as used when they were written. It is written
//! to a file of its own, synced and renamed, so that there is always a whole one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

use super::{Folder, SegmentId};
use crate::format::{MAX_BLOCK_BYTES, MAX_LABEL, Put, Take, VERSION, checksum, cut};
use crate::index::{Index, Pin, Place, Segment};
use crate::shelf::ShelfSpec;

const MAGIC: &[u8; 8] = b"RPWYKVIX";
/// A snapshot is larger than this only if it is damaged: 16 bytes a block.
const MAX_BYTES: u64 = 1 << 30;
/// Bytes of a pin's name at most.
const MAX_NAME: usize = 4096;
/// Bytes of everything that does not grow with the number of blocks, roughly.
const FIXED: u64 = 4096;

/// Bytes that a snapshot takes while it is written: the old one and the new one.
pub(crate) fn snapshot_bytes(index: &Index, more_blocks: u64) -> u64 {
    let segments = index.segments().count() as u64;
    let slots: u64 = index.segments().map(|(_, segment)| segment.slots().len() as u64).sum();
    2 * (FIXED + segments * 24 + (slots + more_blocks) * SLOT as u64 + index.pins.keys() * 32)
}

const SLOT: usize = 16;

/// The beginning: logical time, shelves and pins.
pub(crate) fn encode_head(index: &Index) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put(MAGIC);
    bytes.put_u32(VERSION);
    bytes.put_u64(index.now());
    let shelves: Vec<_> = index.shelves.ids().map(|id| index.shelves.spec(id)).collect();
    bytes.put_u32(shelves.len() as u32);
    for spec in shelves {
        put_spec(&mut bytes, spec);
    }
    bytes.put_u32(index.pins.iter().count() as u32);
    for (shelf, name, pin) in index.pins.iter() {
        bytes.put_u32(shelf.0);
        bytes.put_text(cut(name, MAX_NAME));
        bytes.put_u64(pin.until.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()));
        bytes.put_u32(pin.keys.len() as u32);
        pin.keys.iter().for_each(|key| bytes.put(key));
    }
    bytes
}

fn put_spec(bytes: &mut Vec<u8>, spec: &ShelfSpec) {
    bytes.put(&spec.identity);
    bytes.put_u64(spec.block_bytes as u64);
    bytes.put_u64(spec.block_tokens as u64);
    bytes.put_text(cut(&spec.label, MAX_LABEL));
}

/// One segment: its slots' last uses.
pub(crate) fn encode_segment(bytes: &mut Vec<u8>, id: SegmentId, segment: &Segment) {
    bytes.put_u32(id.0);
    bytes.put_u64(segment.nonce);
    bytes.put_u32(segment.slots().len() as u32);
    for slot in segment.slots() {
        bytes.put_u64(slot.used);
        bytes.put_u32(slot.used_at);
        bytes.put_u32(u32::from(slot.is_live));
    }
}

/// Completes a snapshot and puts it in place of the one before.
pub(crate) fn save(folder: &Folder, mut bytes: Vec<u8>) -> io::Result<()> {
    bytes.put_u64(checksum(&bytes));
    let mut file = File::create(folder.index_draft())?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(folder.index_draft(), folder.index())?;
    folder.sync()
}

/// Tells the index, which knows all segments, what the snapshot says. `None`: there is none, or it is damaged.
pub(crate) fn load(folder: &Folder, index: &mut Index) -> Option<()> {
    if fs::metadata(folder.index()).ok()?.len() > MAX_BYTES {
        return None;
    }
    let bytes = fs::read(folder.index()).ok()?;
    let (checked, mut sum) = bytes.split_at_checked(bytes.len().checked_sub(8)?)?;
    if sum.take_u64()? != checksum(checked) {
        return None;
    }
    let mut rest = checked;
    if rest.take(MAGIC.len())? != MAGIC || rest.take_u32()? != VERSION {
        return None;
    }
    index.advance(rest.take_u64()?);
    apply_pins(&mut rest, index)?;
    while !rest.is_empty() {
        apply_segment(&mut rest, index)?;
    }
    Some(())
}

fn apply_pins(rest: &mut &[u8], index: &mut Index) -> Option<()> {
    let mut shelves = Vec::new();
    for _ in 0..rest.take_u32()? {
        shelves.push(take_spec(rest)?);
    }
    for _ in 0..rest.take_u32()? {
        let spec = shelves.get(rest.take_u32()? as usize)?;
        let name = rest.take_text(MAX_NAME)?;
        let until = UNIX_EPOCH.checked_add(Duration::from_secs(rest.take_u64()?))?;
        let keys = rest.take_u32()? as usize;
        let keys = rest.take(keys.checked_mul(32)?)?.as_chunks().0.to_vec();
        let shelf = index.shelf(spec);
        index.pin(shelf, &name, Pin { keys, until });
    }
    Some(())
}

fn take_spec(rest: &mut &[u8]) -> Option<ShelfSpec> {
    let identity = rest.take_array()?;
    let block_bytes =
        usize::try_from(rest.take_u64()?).ok().filter(|bytes| (1..=MAX_BLOCK_BYTES).contains(bytes))?;
    let block_tokens = usize::try_from(rest.take_u64()?).ok()?;
    Some(ShelfSpec { identity, block_bytes, block_tokens, label: rest.take_text(MAX_LABEL)? })
}

fn apply_segment(rest: &mut &[u8], index: &mut Index) -> Option<()> {
    let id = SegmentId(rest.take_u32()?);
    let nonce = rest.take_u64()?;
    let count = rest.take_u32()?;
    let mut slots = rest.take((count as usize).checked_mul(SLOT)?)?;
    let is_same = index.segment(id).is_some_and(|segment| segment.nonce == nonce);
    for slot in 0..count {
        let (used, used_at, is_live) = (slots.take_u64()?, slots.take_u32()?, slots.take_u32()? != 0);
        let place = Place { segment: id, slot };
        if !is_same || !index.is_live(place) {
            continue;
        }
        if is_live {
            index.advance(used);
            index.set_used(place, used.min(index.now()), used_at);
        } else {
            index.forget(place);
        }
    }
    Some(())
}
