//! Decoders as embedders: the last token's vector, which has seen the whole text.
//!
//! Texts are computed in steps that fill up across texts; one longer than a step goes piece by piece, its keys and values
//! kept meanwhile.

use ropeway_kernels::Compute;
use ropeway_kernels::kv::{BLOCK, KvFormat};
use ropeway_kernels::turnstile::Turn;
use ropeway_model::encoder::Pooling;
use ropeway_model::load::Progress;
use ropeway_model::{Decoder, DecoderSpec, KvCache, Precision, StepArrays, StepLimits, Workspace, load};
use ropeway_weights::Checkpoint;

use super::{Facts, Flat, Net, PassOptions};
use crate::{EmbedError, Recipe};

pub(super) struct DecoderNet {
    decoder: Decoder,
    kv: KvCache,
    work: Workspace,
    arrays: StepArrays,
}

/// Tokens of a decoder's step: enough for every weight panel to be reused from cache.
const STEP_TOKENS: usize = 512;

/// Loads a decoder as an embedder.
pub(super) fn load_net(
    checkpoint: &Checkpoint,
    recipe: &Recipe,
    limit: usize,
    options: &PassOptions,
    compute: &mut Compute,
    progress: Progress<'_>,
) -> Result<(Net, Facts), EmbedError> {
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
    Ok((Net::Decoder(Box::new(DecoderNet { decoder, kv, work, arrays: StepArrays::default() })), facts))
}

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
    /// Tokens of a pass.
    pub(super) fn tokens(&self) -> usize {
        self.kv.tokens()
    }

    /// The last token's vector of every text.
    pub(super) fn decode(
        &mut self,
        compute: &mut Compute,
        flat: &Flat,
        mut turn: Option<&mut Turn<'_>>,
    ) -> Vec<Vec<f32>> {
        let mut vectors = vec![Vec::new(); flat.rows.len()];
        let firsts = first_blocks(flat);
        let pieces = pieces(flat);
        let mut rest = pieces.as_slice();
        while !rest.is_empty() {
            let count = fitting(rest);
            let (step_pieces, later) = rest.split_at(count);
            rest = later;
            self.arrays.clear();
            for piece in step_pieces {
                push(&mut self.arrays, flat, *piece, firsts[piece.text]);
            }
            let step = self.arrays.step();
            let ends = self.decoder.vectors(compute, &step, &mut self.kv, &mut self.work);
            let ended = step_pieces.iter().filter(|piece| piece.last);
            for (piece, vector) in ended.zip(ends.chunks_exact(self.decoder.spec.hidden)) {
                vectors[piece.text] = vector.to_vec();
            }
            if let Some(turn) = &mut turn {
                turn.step_aside();
            }
        }
        vectors
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
