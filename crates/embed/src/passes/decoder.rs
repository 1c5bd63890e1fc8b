//! Decoders as embedders: the last token's vector, which has seen the whole text.
//!
//! Texts are computed in steps that fill up across texts; one longer than a step goes piece by piece, its keys and values
//! kept meanwhile.

use std::time::Duration;

use ropeway_kernels::Compute;
use ropeway_kernels::kv::{BLOCK, KvFormat};
use ropeway_machine::Tenant;
use ropeway_model::encoder::Pooling;
use ropeway_model::load::Progress;
use ropeway_model::{Decoder, DecoderSpec, KvCache, Precision, StepArrays, StepLimits, Workspace, load};
use ropeway_weights::Checkpoint;

use super::{Computed, Facts, Flat, Pass, PassOptions};
use crate::{EmbedError, Recipe};

pub(super) struct DecoderNet {
    decoder: Decoder,
    kv: KvCache,
    work: Workspace,
    arrays: StepArrays,
}

/// Tokens of a decoder's step: enough for every weight panel to be reused from cache.
const STEP_TOKENS: usize = 512;

/// Some tokens of one text.
#[derive(Clone, Copy)]
struct Piece {
    text: usize,
    start: usize,
    len: usize,
    /// Whether the text ends with it.
    last: bool,
}

impl DecoderNet {
    /// Loads a decoder as an embedder.
    pub(super) fn load(
        checkpoint: &Checkpoint,
        recipe: &Recipe,
        limit: usize,
        options: &PassOptions,
        compute: &mut Compute,
        progress: Progress<'_>,
    ) -> Result<(Self, Facts), EmbedError> {
        if recipe.pooling != Pooling::Last {
            let what = format!("pooling a decoder by {:?}", recipe.pooling);
            return Err(EmbedError::Unsupported { what });
        }
        let spec = DecoderSpec::from_checkpoint(checkpoint)?;
        let max_tokens = spec.context.min(limit);
        let decoder = load(checkpoint, spec, options.load, compute, progress)?;
        let facts = Facts {
            family: decoder.spec.family,
            dimensions: decoder.spec.hidden,
            max_tokens,
            vocab: decoder.spec.vocab,
            can_score: false,
        };
        let format = match options.load.precision {
            Precision::Fast => KvFormat::S16,
            Precision::F32 => KvFormat::F32,
        };
        let blocks = options.pass_tokens.max(max_tokens).div_ceil(BLOCK);
        let kv = KvCache::new(&decoder.spec, format, blocks);
        let limits = StepLimits { tokens: STEP_TOKENS, rows: 0 };
        let work = Workspace::new(&decoder, kv.layout(), limits, compute);
        Ok((Self { decoder, kv, work, arrays: StepArrays::default() }, facts))
    }

    /// Tokens of a pass.
    pub(super) fn tokens(&self) -> usize {
        self.kv.tokens()
    }

    pub(super) fn layers(&self) -> usize {
        self.decoder.spec.layers.len()
    }

    /// The last token's vector of every text.
    pub(super) fn run(&mut self, tenant: &mut Tenant, pass: &Pass<'_>) -> Computed {
        let flat = pass.flat;
        let mut values = vec![Vec::new(); flat.rows.len()];
        let mut waited = Duration::ZERO;
        let firsts = first_blocks(flat);
        let pieces = pieces(flat);
        let mut rest = pieces.as_slice();
        while !rest.is_empty() {
            let (step_pieces, later) = rest.split_at(fitting(rest));
            rest = later;
            self.arrays.clear();
            for piece in step_pieces {
                push(&mut self.arrays, flat, *piece, firsts[piece.text]);
            }
            let mut lease = tenant.lease(pass.lease_request(self.arrays.len()));
            let ends = self.decoder.vectors(&mut lease, &self.arrays.step(), &mut self.kv, &mut self.work);
            waited += lease.waited();
            drop(lease);
            let ended = step_pieces.iter().filter(|piece| piece.last);
            for (piece, vector) in ended.zip(ends.chunks_exact(self.decoder.spec.hidden)) {
                values[piece.text] = vector.to_vec();
            }
        }
        Computed { values, waited }
    }
}

/// How many of the first pieces fit into a step together; at least one, as none is longer than a step.
fn fitting(pieces: &[Piece]) -> usize {
    let mut tokens = 0;
    let fits = |piece: &&Piece| {
        tokens += piece.len;
        tokens <= STEP_TOKENS
    };
    pieces.iter().take_while(fits).count()
}

/// The first KV block of each text.
fn first_blocks(flat: &Flat) -> Vec<u32> {
    let blocks = flat.rows.iter().map(|rows| rows.len().div_ceil(BLOCK) as u32);
    blocks.scan(0, |next, blocks| Some(std::mem::replace(next, *next + blocks))).collect()
}

/// All texts in order, cut where they are longer than a step.
fn pieces(flat: &Flat) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (text, rows) in flat.rows.iter().enumerate() {
        for start in (0..rows.len()).step_by(STEP_TOKENS) {
            let len = STEP_TOKENS.min(rows.len() - start);
            pieces.push(Piece { text, start, len, last: start + len == rows.len() });
        }
    }
    pieces
}

/// Adds a piece of a text to a step.
fn push(arrays: &mut StepArrays, flat: &Flat, piece: Piece, first_block: u32) {
    let rows = &flat.rows[piece.text];
    let from = rows.start + piece.start;
    let blocks = rows.len().div_ceil(BLOCK) as u32;
    arrays.push_chunk(&flat.tokens[from..from + piece.len], piece.start, first_block..first_block + blocks);
    if piece.last {
        arrays.want_logits(arrays.len() - 1);
    }
}
