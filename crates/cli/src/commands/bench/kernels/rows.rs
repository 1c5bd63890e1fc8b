//! What happens to rows between products: norm and quantise, rotate and store.

use ropeway_kernels::Compute;
use ropeway_kernels::activations::{Activations, Needs, Width};
use ropeway_kernels::attention::Queries;
use ropeway_kernels::elementwise::Norm;
use ropeway_kernels::kv::{BLOCK, KvFormat};
use ropeway_kernels::memory::Buffer;
use ropeway_kernels::prepare::{Before, NormBy, Prepare, Rows, prepare};
use ropeway_kernels::route::{DistinctSlots, KvSlot, Pairing, Rotation, Route, route};

use super::attention::{HEADS, PROJECTED, layout, name, projections, slot};
use super::effort::Effort;
use super::timing::{Measurement, Reading, Timing, repeat};

/// Values of a row of the default model.
const HIDDEN: usize = 576;
/// Pairs of a head that turn: all of them.
const PAIRS: usize = 32;

/// Runs both for every number of rows.
pub fn measure(compute: &mut Compute, effort: &Effort) -> Vec<Measurement> {
    let mut all = Vec::new();
    for &rows in &effort.rows {
        all.extend(
            [Width::Narrow, Width::Mixed, Width::Wide].map(|width| preparing(compute, width, rows, effort)),
        );
        all.extend(effort.kv_formats.iter().map(|&format| routing(compute, format, rows, effort)));
    }
    all.sort_by(|a, b| a.kernel.cmp(&b.kernel));
    all
}

fn preparing(compute: &mut Compute, width: Width, rows: usize, effort: &Effort) -> Measurement {
    let source: Vec<f32> = (0..rows * HIDDEN).map(|i| (i as f32).sin()).collect();
    let needs = Needs { records: true, wide: width.has_lows(), ..Needs::default() };
    let mut target = Activations::with_capacity(rows, HIDDEN, needs);
    let norm = NormBy { weight: &[1.0; HIDDEN], norm: Norm { eps: 1e-5, offset: 0.0 } };
    let what = Prepare {
        source: &source,
        stride: HIDDEN,
        cols: HIDDEN,
        rows: Rows::First(rows),
        before: Before::RmsNorm(norm),
        width,
    };
    let timing = repeat(effort.budget, || prepare(compute, &what, &mut target));
    let kernel = match width {
        Width::Narrow => "prepare narrow",
        Width::Mixed => "prepare mixed",
        Width::Wide => "prepare wide",
    };
    measurement(kernel.to_owned(), HIDDEN, rows, timing)
}

fn routing(compute: &mut Compute, format: KvFormat, rows: usize, effort: &Effort) -> Measurement {
    let layout = layout(format);
    let mut projections = projections(rows);
    let slots: Vec<KvSlot> = (0..rows).map(|row| slot(0, row)).collect();
    let slots = DistinctSlots::new(&slots, &mut Vec::new());
    let angles = angles(rows);
    let mut queries = Queries::with_capacity(rows, HEADS, layout);
    let mut kv = Buffer::zeroed(rows.div_ceil(BLOCK) * layout.block_bytes());
    let timing = repeat(effort.budget, || {
        // Turning the same values again and again keeps their length.
        let what = Route {
            projections: &mut projections,
            heads: HEADS,
            norms: None,
            rotation: Some(Rotation { angles: &angles, pairs: PAIRS, pairing: Pairing::Half }),
            slots,
            layout,
        };
        route(compute, what, &mut queries, &mut kv);
    });
    measurement(format!("route {}", name(format)), PROJECTED, rows, timing)
}

/// `[row][cosines | sines]`.
fn angles(rows: usize) -> Vec<f32> {
    let angle = |row: usize, pair: usize| row as f32 * 0.5f32.powi(pair as i32 / 3);
    (0..rows)
        .flat_map(|row| {
            let cosines = (0..PAIRS).map(move |pair| angle(row, pair).cos());
            cosines.chain((0..PAIRS).map(move |pair| angle(row, pair).sin()))
        })
        .collect()
}

fn measurement(kernel: String, width: usize, rows: usize, timing: Timing) -> Measurement {
    Measurement {
        group: "rows",
        kernel,
        shape: format!("{width} wide"),
        rows,
        timing,
        operations: None,
        reading: Reading::again(rows * width * size_of::<f32>()),
    }
}
