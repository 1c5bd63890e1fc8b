//! The kernels of experts on the emulator: what they choose, list, multiply and add up against plain loops, bit for bit.

mod emulator;

use emulator::bench::{Bench, Random};
use ropeway_cuda::driver::{Address, Buffer, LaunchShape};
use ropeway_cuda::kernels::{
    Combine, ExpertKernels, ExpertTiles, Linear, LinearKernel, Router, RouterKernel, SortByExpert,
    TopkExperts,
};

const EPS: f32 = 1e-6;

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn numbers(random: &mut Random, count: usize) -> Vec<f32> {
    (0..count).map(|_| random.unit()).collect()
}

/// The sum of a warp's lanes, as `warp_sum` adds them.
fn lanes_added(mut lanes: Vec<f32>) -> f32 {
    for step in [16, 8, 4, 2, 1] {
        lanes = (0..32).map(|lane: usize| lanes[lane] + lanes[lane ^ step]).collect();
    }
    lanes[0]
}

/// `sum of a * b` as a warp computes it: lane by lane, then the lanes.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = vec![0.0_f32; 32];
    a.iter().zip(b).enumerate().for_each(|(at, (a, b))| lanes[at % 32] = a.mul_add(*b, lanes[at % 32]));
    lanes_added(lanes)
}

/// A layer that chooses experts, and rows for it.
struct Layer {
    width: usize,
    hidden: Vec<f32>,
    norm: Vec<f32>,
    w: Vec<f32>,
}

impl Layer {
    fn random(random: &mut Random, [rows, experts, width]: [usize; 3]) -> Self {
        let [hidden, norm, w] = [rows * width, width, experts * width].map(|count| numbers(random, count));
        Self { width, hidden, norm, w }
    }

    fn rows(&self) -> usize {
        self.hidden.len() / self.width
    }

    fn experts(&self) -> usize {
        self.w.len() / self.width
    }

    /// The logits of every row, by plain loops.
    fn expected(&self) -> Vec<f32> {
        let rows = self.hidden.chunks(self.width);
        let logits = rows.flat_map(|row| {
            let scale = 1.0 / (dot(row, row) / self.width as f32 + EPS).sqrt();
            let x: Vec<f32> = row.iter().zip(&self.norm).map(|(h, norm)| h * norm).collect();
            self.w.chunks(self.width).map(move |w| dot(&x, w) * scale)
        });
        logits.collect()
    }

    /// The logits of every row, and the counts that the router clears.
    fn routed(&self, bench: &Bench, kernel: &RouterKernel) -> [Vec<u32>; 2] {
        let [hidden, norm, w] =
            [&self.hidden, &self.norm, &self.w].map(|all| bench.upload(&bytes(&bits(all))));
        let logits = bench.upload(&vec![0xff; self.rows() * self.experts() * 4]);
        let counts = bench.upload(&vec![0xff; self.experts() * 4]);
        let arguments = Router {
            hidden: hidden.address(),
            norm: norm.address(),
            w: w.address(),
            logits: logits.address(),
            counts: counts.address(),
            width: self.width as u32,
            rows: self.rows() as u32,
            experts: self.experts() as u32,
            eps: EPS,
        };
        let shape = kernel.shape(self.rows(), self.experts());
        bench.stream.launch(&kernel.function, shape, &arguments).expect("a launch");
        [&logits, &counts].map(|buffer| words(&bench.download(buffer)))
    }
}

#[test]
fn every_form_of_the_router_gives_the_bits_of_plain_loops_whatever_its_shape() {
    let Some(bench) = Bench::open() else { return };
    let mut random = Random(5);
    for shape in [
        [1, 128, 256],
        [1, 5, 40],
        [3, 5, 8],
        [3, 33, 1064],
        [8, 16, 128],
        [70, 130, 200],
        [33, 60, 392],
        [2, 6, 2088],
    ] {
        let layer = Layer::random(&mut random, shape);
        let want = bits(&layer.expected());
        for (form, kernel) in bench.kernels.experts.routers.iter().enumerate() {
            let [logits, counts] = layer.routed(&bench, kernel);
            assert!(logits == want, "{shape:?}, form {form}");
            assert!(counts.iter().all(|count| *count == 0), "{shape:?}, form {form}");
        }
    }
}

/// What is chosen of rows of logits: `[rows][top_k]`.
#[derive(Debug, PartialEq)]
struct Choices {
    experts: Vec<u32>,
    weights: Vec<u32>,
    counts: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Choice {
    experts: usize,
    top_k: usize,
    normalise: bool,
}

impl Choice {
    fn expected(self, logits: &[f32]) -> Choices {
        let Self { experts, top_k, normalise } = self;
        let mut all = Choices { experts: Vec::new(), weights: Vec::new(), counts: vec![0; experts] };
        for row in logits.chunks(experts) {
            let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let shares: Vec<f32> = row.iter().map(|logit| (logit - most).exp()).collect();
            let mut order: Vec<usize> = (0..experts).collect();
            order.sort_by(|one, other| shares[*other].total_cmp(&shares[*one])); // stable: the lower index first
            let chosen = &mut order[..top_k];
            let kept = chosen.iter().fold(0.0, |sum, expert| sum + shares[*expert]);
            let lane = |lane: usize| shares.iter().skip(lane).step_by(32).fold(0.0, |sum, share| sum + share);
            let whole = if normalise { kept } else { lanes_added((0..32).map(lane).collect()) };
            chosen.sort_unstable();
            for expert in chosen {
                all.experts.push(*expert as u32);
                all.weights.push((shares[*expert] / whole).to_bits());
                all.counts[*expert] += 1;
            }
        }
        all
    }

    fn picked(self, bench: &Bench, logits: &[f32], listed: Option<&Listed>) -> Choices {
        let Self { experts, top_k, normalise } = self;
        let rows = logits.len() / experts;
        let logits = bench.upload(&bytes(&bits(logits)));
        let [experts_of, weights] = [(); 2].map(|()| bench.upload(&vec![0xff; rows * top_k * 4]));
        let counts = bench.zeros(experts * 4);
        let arguments = TopkExperts {
            logits: logits.address(),
            experts_of: experts_of.address(),
            weights: weights.address(),
            counts: counts.address(),
            lists: listed.map_or(Address::NULL, |listed| listed.lists.address()),
            work: listed.map_or(Address::NULL, |listed| listed.work.address()),
            rows: rows as u32,
            experts: experts as u32,
            top_k: top_k as u32,
            normalise: u32::from(normalise),
        };
        let shape = ExpertKernels::topk_shape(rows, experts);
        bench.stream.launch(&bench.kernels.experts.topk, shape, &arguments).expect("a launch");
        let [experts, weights, counts] =
            [&experts_of, &weights, &counts].map(|all| words(&bench.download(all)));
        Choices { experts, weights, counts }
    }
}

#[test]
fn the_largest_shares_are_chosen_and_the_lower_index_wins_a_tie() {
    let Some(bench) = Bench::open() else { return };
    let mut random = Random(17);
    for (rows, experts, top_k) in [(1, 128, 8), (3, 5, 5), (70, 130, 7), (9, 8, 1), (5, 64, 2), (2, 33, 33)] {
        for normalise in [true, false] {
            let choice = Choice { experts, top_k, normalise };
            let any: Vec<f32> = numbers(&mut random, rows * experts).iter().map(|x| x * 9.0).collect();
            // Few different values; and such that most shares are 0.
            let tied: Vec<f32> = any.iter().map(|x| (x / 6.0).round()).collect();
            let far: Vec<f32> = any.iter().map(|x| x * 100.0).collect();
            for logits in [any, tied, far, vec![0.5; rows * experts]] {
                assert_eq!(
                    choice.picked(&bench, &logits, None),
                    choice.expected(&logits),
                    "{rows} rows, {choice:?}"
                );
            }
        }
    }
}

/// Pairs by their experts, as `lists` finds them.
struct Listed {
    lists: Buffer,
    work: Buffer,
    tiles: ExpertTiles,
}

impl Listed {
    fn blank(bench: &Bench, pairs: usize, tiles: ExpertTiles) -> Self {
        let (lists, work) =
            (bench.upload(&vec![0xff; pairs * 4]), bench.upload(&vec![0xff; tiles.most * 16]));
        Self { lists, work, tiles }
    }
}

fn listed(bench: &Bench, experts_of: &[u32], experts: usize, tile: usize) -> Listed {
    let pairs = experts_of.len();
    let tiles = ExpertTiles::of_rows(tile, pairs, experts);
    let mut counts = vec![0; experts];
    for expert in experts_of {
        counts[*expert as usize] += 1;
    }
    let [given, counts] = [experts_of, &counts].map(|words| bench.upload(&bytes(words)));
    let listed = Listed::blank(bench, pairs, tiles);
    let arguments = SortByExpert {
        experts_of: given.address(),
        counts: counts.address(),
        lists: listed.lists.address(),
        work: listed.work.address(),
        pairs: pairs as u32,
        experts: experts as u32,
        tile: tile as u32,
        items: tiles.most as u32,
    };
    let shape = ExpertKernels::sort_shape(pairs, experts);
    bench.stream.launch(&bench.kernels.experts.sort, shape, &arguments).expect("a launch");
    listed
}

/// The pairs of every item of work, with its expert.
fn expected_work(experts_of: &[u32], experts: usize, tile: usize) -> Vec<(u32, Vec<u32>)> {
    let pairs_of = |expert: u32| -> Vec<u32> {
        (0..experts_of.len() as u32).filter(|pair| experts_of[*pair as usize] == expert).collect()
    };
    let items = (0..experts as u32).flat_map(|expert| {
        pairs_of(expert).chunks(tile).map(|pairs| (expert, pairs.to_vec())).collect::<Vec<_>>()
    });
    items.collect()
}

/// Distributions of pairs: by chance, all on one expert, whole tiles, and most experts without any.
fn distributions(random: &mut Random) -> Vec<(usize, Vec<u32>)> {
    let mut by_chance = |experts: usize, pairs: usize| -> (usize, Vec<u32>) {
        (experts, (0..pairs).map(|_| random.below(experts) as u32).collect())
    };
    vec![
        by_chance(128, 8),
        by_chance(5, 37),
        by_chance(130, 700),
        by_chance(3, 9001),
        (16, vec![7; 64]),
        (16, vec![15; 33]),
        (1, vec![0; 8]),
        (4, (0..256).map(|pair| pair % 2 * 3).collect()),
        (40, (0..24).map(|pair| 39 - pair / 8).collect()),
    ]
}

#[test]
fn every_pair_is_in_one_tile_of_its_expert_and_tiles_without_pairs_come_last() {
    let Some(bench) = Bench::open() else { return };
    for (experts, experts_of) in distributions(&mut Random(23)) {
        for tile in [8, 32, 64, 128] {
            let listed = listed(&bench, &experts_of, experts, tile);
            let lists = words(&bench.download(&listed.lists));
            let items = words(&bench.download(&listed.work));
            let (there, empty): (Vec<&[u32]>, Vec<_>) = items.chunks(4).partition(|item| item[2] > 0);
            assert!(items.chunks(4).take(there.len()).all(|item| item[2] > 0), "{experts} experts");
            assert!(empty.iter().all(|item| item[2] == 0));
            let got: Vec<(u32, Vec<u32>)> = there
                .iter()
                .map(|item| (item[0], lists[item[1] as usize..][..item[2] as usize].to_vec()))
                .collect();
            assert_eq!(got, expected_work(&experts_of, experts, tile), "{experts} experts, tiles of {tile}");
        }
    }
}

#[test]
fn a_single_row_is_listed_as_it_is_picked() {
    let Some(bench) = Bench::open() else { return };
    let mut random = Random(41);
    for (experts, top_k) in [(128, 8), (5, 5), (40, 1)] {
        let choice = Choice { experts, top_k, normalise: true };
        let logits = numbers(&mut random, experts);
        let picked = Listed::blank(&bench, top_k, ExpertTiles::of_rows(8, top_k, experts));
        let choices = choice.picked(&bench, &logits, Some(&picked));
        assert_eq!(choices.experts, choice.expected(&logits).experts);
        let listed = listed(&bench, &choices.experts, experts, 8);
        let both =
            [&picked, &listed].map(|all| [&all.lists, &all.work].map(|all| words(&bench.download(all))));
        assert_eq!(both[0], both[1], "{top_k} of {experts}");
    }
}

/// A matrix of every expert and the rows that it is multiplied with.
struct Product<'a> {
    bench: &'a Bench,
    w: Buffer,
    x: Buffer,
    outputs: usize,
    inputs: usize,
}

impl Product<'_> {
    fn run(&self, kernel: &LinearKernel, given: Linear, items: usize) -> Vec<u32> {
        let y = self.bench.upload(&vec![0xff; given.rows as usize * self.outputs * 4]);
        let grid = [self.outputs.div_ceil(kernel.outputs), 1, items].map(|side| side as u32);
        let shape = LaunchShape { grid, threads: kernel.threads, shared_bytes: kernel.shared };
        let arguments = Linear { y: y.address(), ..given };
        self.bench.stream.launch(&kernel.f32, shape, &arguments).expect("a launch");
        words(&self.bench.download(&y))
    }

    /// Every row times the matrix of one expert.
    fn dense(&self, kernel: &LinearKernel, expert: usize, rows: usize) -> Vec<u32> {
        let w = self.w.address().plus(expert * self.outputs * self.inputs * 2);
        self.run(kernel, Linear { w, ..self.arguments(rows) }, rows.div_ceil(kernel.rows))
    }

    /// Every pair by its expert; two pairs share a row.
    fn of_pairs(&self, kernel: &LinearKernel, pairs: usize, listed: &Listed) -> Vec<u32> {
        let (lists, work) = (listed.lists.address(), listed.work.address());
        let arguments = Linear { lists, work, rows_per_input: 2, ..self.arguments(pairs) };
        self.run(kernel, arguments, listed.tiles.most)
    }

    fn arguments(&self, rows: usize) -> Linear {
        Linear {
            w: self.w.address(),
            strip_scales: Address::NULL,
            x: self.x.address(),
            y: Address::NULL,
            partial: Address::NULL,
            finished: Address::NULL,
            lists: Address::NULL,
            work: Address::NULL,
            n: self.outputs as u32,
            rows: rows as u32,
            k: self.inputs as u32,
            slices: 1,
            rows_per_input: 1,
            bf16_results: 0,
        }
    }
}

/// Random numbers in bf16.
fn halves(bench: &Bench, random: &mut Random, count: usize) -> Buffer {
    let bytes: Vec<u8> =
        (0..count).flat_map(|_| ((random.unit().to_bits() >> 16) as u16).to_le_bytes()).collect();
    bench.upload(&bytes)
}

#[test]
fn a_pair_s_product_has_the_bits_of_its_row_times_its_expert_s_matrix() {
    let Some(bench) = Bench::open() else { return };
    let mut random = Random(29);
    let (outputs, inputs) = (136, 424); // a block and a bit; more stages than any kernel holds at once
    let small = |(experts, pairs): &(usize, Vec<u32>)| *experts <= 16 && pairs.len() <= 256;
    for (experts, experts_of) in distributions(&mut Random(31)).into_iter().filter(small) {
        let (pairs, rows) = (experts_of.len(), experts_of.len().div_ceil(2));
        let w = halves(&bench, &mut random, experts * outputs * inputs);
        let x = halves(&bench, &mut random, rows * inputs);
        let product = Product { bench: &bench, w, x, outputs, inputs };
        let kernels = &bench.kernels.products.linear;
        let dense: Vec<_> = (0..experts).map(|expert| product.dense(&kernels[0], expert, rows)).collect();
        let want: Vec<u32> = (0..pairs)
            .flat_map(|pair| dense[experts_of[pair] as usize][pair / 2 * outputs..][..outputs].to_vec())
            .collect();
        for kernel in kernels.iter().chain(&bench.kernels.products.warpgroups) {
            let listed = listed(&bench, &experts_of, experts, kernel.rows);
            let got = product.of_pairs(kernel, pairs, &listed);
            assert!(got == want, "{experts} experts, {pairs} pairs, {}", kernel.name);
        }
    }
}

#[test]
fn results_are_added_in_the_order_of_their_experts() {
    let Some(bench) = Bench::open() else { return };
    let mut random = Random(37);
    for (rows, top_k, width) in [(1, 1, 4), (3, 8, 520), (5, 9, 1032), (2, 17, 512)] {
        let (results, weights) =
            (numbers(&mut random, rows * top_k * width), numbers(&mut random, rows * top_k));
        let want: Vec<f32> = (0..rows * width)
            .map(|at| {
                let pairs = (0..top_k).map(|k| at / width * top_k + k);
                pairs.fold(0.0, |sum, pair| sum + weights[pair] * results[pair * width + at % width])
            })
            .collect();
        let [results, weights] = [&results, &weights].map(|all| bench.upload(&bytes(&bits(all))));
        let branch = bench.upload(&vec![0xff; rows * width * 4]);
        let arguments = Combine {
            results: results.address(),
            weights: weights.address(),
            branch: branch.address(),
            width: width as u32,
            top_k: top_k as u32,
        };
        let shape = ExpertKernels::combine_shape(rows, width);
        bench.stream.launch(&bench.kernels.experts.combine, shape, &arguments).expect("a launch");
        assert!(words(&bench.download(&branch)) == bits(&want), "{rows} rows, {top_k} choices of {width}");
    }
}
