//! Packed matrices on the emulator: their products have the bits of plain ones over the same weights, and their weights are those of the
//! file.

mod emulator;

use std::path::Path;

use emulator::bench::{Bench, Random};
use ropeway_cuda::driver::{Address, Buffer, LaunchShape};
use ropeway_cuda::kernels::{Linear, LinearKernel};
use ropeway_cuda::packed::{EmbedPacked, PackedForm, Strip, Unpack};
use ropeway_cuda::plan::{Form, Results};
use ropeway_cuda::products::trial::{ProductBench, ProductCase};
use ropeway_weights::{Bits, Checkpoint, Form as TensorForm, Tensor};

/// Copies of a matrix of random quants, packed, with what each weight is in exact f32.
struct Matrix {
    form: PackedForm,
    copies: usize,
    outputs: usize,
    inputs: usize,
    bytes: Vec<u8>,
    exact: Vec<f32>,
}

impl Matrix {
    fn random(random: &mut Random, form: PackedForm, [copies, outputs, inputs]: [usize; 3]) -> Self {
        let top = if form.bits == Bits::Four { 16 } else { 256 };
        let (mut bytes, mut strip_scales, mut exact) = (Vec::new(), Vec::new(), Vec::new());
        let mut record = vec![0; form.strip_bytes(inputs)];
        for first in (0..copies).flat_map(|_| (0..outputs).step_by(16)) {
            let mut strip = Strip::new(form, inputs);
            for slot in 0..16.min(outputs - first) {
                let row = strip.row(slot);
                row.quants[..inputs].iter_mut().for_each(|quant| *quant = random.below(top) as u8);
                for (scale, min) in row.scales.iter_mut().zip(&mut *row.mins) {
                    [*scale, *min] = random_factors(random, form.bits);
                }
                for (k, quant) in row.quants[..inputs].iter().enumerate() {
                    let group = k / form.group.len();
                    exact.push(row.scales[group].mul_add(f32::from(*quant), row.mins[group]));
                }
            }
            strip_scales.push(strip.pack(&mut record));
            bytes.extend_from_slice(&record);
        }
        bytes.extend(strip_scales.iter().flat_map(|strip_scale| strip_scale.to_le_bytes()));
        Self { form, copies, outputs, inputs, bytes, exact }
    }

    fn strip_scales(&self, at: Address, copy: usize) -> Address {
        at.plus(self.copies * self.form.records_bytes(self.outputs, self.inputs))
            .plus(copy * self.outputs.div_ceil(16) * 4)
    }

    /// All copies as plain bf16, by the kernel.
    fn unpacked(&self, bench: &Bench, packed: &Buffer) -> Buffer {
        let out = bench.allocate(self.copies * self.outputs * self.inputs * 2);
        for copy in 0..self.copies {
            let arguments = Unpack {
                w: packed.address().plus(copy * self.form.records_bytes(self.outputs, self.inputs)),
                strip_scales: self.strip_scales(packed.address(), copy),
                out: out.address().plus(copy * self.outputs * self.inputs * 2),
                n: self.outputs as u32,
                k: self.inputs as u32,
            };
            let grid = [self.outputs.div_ceil(16) as u32, self.inputs.div_ceil(256) as u32, 1];
            let unpack = &bench.kernels.products.packed(self.form).unpack;
            let shape = LaunchShape { grid, threads: 128, shared_bytes: 0 };
            bench.stream.launch(unpack, shape, &arguments).expect("a launch");
        }
        out
    }
}

/// A scale and a min of as many bits as are kept, tiny, like those of real files. 4-bit quants have the middle of their weights in place of
/// the min.
fn random_factors(random: &mut Random, bits: Bits) -> [f32; 2] {
    let mut factor = |bits: i32| {
        let mantissa = (1 << (bits - 1)) + random.below(1 << (bits - 1));
        mantissa as f32 * 2f32.powi(-9 - bits - random.below(3) as i32)
    };
    match bits {
        Bits::Four => {
            let (scale, middle) = (factor(8), factor(8));
            [scale, middle - 8.0 * scale]
        }
        Bits::Eight => {
            let scale = factor(11);
            [scale, -128.0 * scale]
        }
    }
}

fn narrow(value: f32) -> u16 {
    ((value.to_bits() + 0x7fff + (value.to_bits() >> 16 & 1)) >> 16) as u16
}

fn words(bytes: &[u8]) -> Vec<u16> {
    bytes.as_chunks().0.iter().map(|pair| u16::from_le_bytes(*pair)).collect()
}

#[test]
fn unpacked_weights_are_the_nearest_bf16_of_the_exact_ones() {
    let Some(bench) = Bench::open() else { return };
    let mut random = Random(3);
    for form in PackedForm::ALL {
        for [outputs, inputs] in [[16, 64], [40, 96], [7, 32], [64, 544]] {
            let matrix = Matrix::random(&mut random, form, [1, outputs, inputs]);
            let packed = bench.upload(&matrix.bytes);
            let got = words(&bench.download(&matrix.unpacked(&bench, &packed)));
            let want: Vec<u16> = matrix.exact.iter().map(|value| narrow(*value)).collect();
            assert!(got == want, "{form:?} {outputs} x {inputs}");
        }
    }
}

/// A file of the reader's tests: 1,024 values that a program of the format's authors has packed.
fn file(name: &str) -> Tensor {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../weights/tests/fixtures/gguf");
    let checkpoint = Checkpoint::open(&folder.join(format!("{name}.gguf"))).expect("a fixture");
    checkpoint.tensor("packed").expect("its tensor")
}

/// A tensor packed and unpacked, and the nearest bf16 of its exact values; zeros have no sign.
fn there_and_back(bench: &Bench, tensor: &Tensor) -> [Vec<f32>; 2] {
    let TensorForm::Affine(form) = tensor.form() else { panic!("{} is not packed", tensor.name()) };
    let (form, inputs, outputs) = (PackedForm::of(form), tensor.cols(), tensor.rows());
    assert!(outputs <= 16, "one strip");
    let mut strip = Strip::new(form, inputs);
    (0..outputs).for_each(|row| strip.read(row, tensor, row, None));
    let mut bytes = vec![0; form.strip_bytes(inputs)];
    let strip_scale = strip.pack(&mut bytes);
    bytes.extend(strip_scale.to_le_bytes());
    let mut exact = vec![0.0; outputs * inputs];
    exact.chunks_exact_mut(inputs).enumerate().for_each(|(row, out)| tensor.read_f32(row, out));
    let packed = bench.upload(&bytes);
    let matrix = Matrix { form, copies: 1, outputs, inputs, bytes, exact };
    let got = words(&bench.download(&matrix.unpacked(bench, &packed)));
    let want: Vec<u16> = matrix.exact.iter().map(|value| narrow(*value)).collect();
    [got, want].map(|all| all.iter().map(|bits| f32::from_bits(u32::from(*bits) << 16)).collect())
}

#[test]
fn formats_with_a_fixed_zero_and_half_precision_scales_keep_every_weight_of_8_bits() {
    let Some(bench) = Bench::open() else { return };
    for name in ["Q5_0", "Q8_0", "IQ4_NL"] {
        let [got, want] = there_and_back(&bench, &file(name));
        assert!(got == want, "{name}");
    }
}

/// Products of a half and a small integer have more bits than are kept, and random mins may be tiny beside their scales.
#[test]
fn other_formats_of_8_bits_keep_nearly_every_weight_and_round_the_rest_the_other_way() {
    let Some(bench) = Bench::open() else { return };
    for name in ["Q5_1", "Q5_K", "Q6_K", "IQ4_XS"] {
        let [got, want] = there_and_back(&bench, &file(name));
        let most = want.iter().fold(0.0, |most: f32, value| most.max(value.abs()));
        let differences = || got.iter().zip(&want).map(|(got, want)| (got - want).abs());
        let (other, error) = (differences().filter(|x| *x > 0.0).count(), differences().fold(0.0, f32::max));
        println!(
            "{name}: {other} of {} weights differ, by {:.1e} of the largest at most",
            got.len(),
            error / most
        );
        assert!(other * 10 < got.len() && error <= most / 128.0, "{name}: {other}, {error}");
    }
}

/// A scale and a middle rounded to bf16 are off by 2^-9 of themselves at most, 0.1 % on average; the quants have made a weight off by several
/// per cent before.
#[test]
fn formats_of_4_bits_lose_no_more_than_factors_rounded_to_bf16() {
    let Some(bench) = Bench::open() else { return };
    for name in ["Q4_0", "Q4_1", "Q2_K", "Q3_K", "Q4_K"] {
        let [got, want] = there_and_back(&bench, &file(name));
        let square =
            |values: &mut dyn Iterator<Item = f32>| values.map(|x| f64::from(x).powi(2)).sum::<f64>();
        let lost = square(&mut got.iter().zip(&want).map(|(got, want)| got - want));
        let error = (lost / square(&mut want.iter().copied())).sqrt();
        println!("{name}: weights are off by {error:.1e}");
        assert!(error < 1.0 / 256.0, "{name}: {error}");
    }
}

/// What a product is computed with, and where to.
struct Product<'a> {
    matrix: &'a Matrix,
    kernel: &'a LinearKernel,
    w: Address,
    x: &'a Buffer,
    rows: usize,
    slices: usize,
    /// The lists of experts, and the work on them.
    experts: Option<&'a Work>,
}

impl Product<'_> {
    fn results(&self, bench: &Bench) -> Vec<u8> {
        let Matrix { outputs, inputs, .. } = *self.matrix;
        let tiles = [outputs.div_ceil(self.kernel.outputs), self.rows.div_ceil(self.kernel.rows)];
        let tile_bytes = self.kernel.outputs * self.kernel.rows * 4;
        let partial = bench.allocate(self.slices * tiles[0] * tiles[1] * tile_bytes);
        let finished = bench.zeros(tiles[0] * tiles[1] * 4);
        let y = bench.zeros(self.rows * outputs * 4);
        let (lists, work) = self
            .experts
            .map_or((Address::NULL, Address::NULL), |work| (work.lists.address(), work.items.address()));
        let arguments = Linear {
            w: self.w,
            strip_scales: self.matrix.strip_scales(self.w, 0),
            x: self.x.address(),
            y: y.address(),
            partial: partial.address(),
            finished: finished.address(),
            lists,
            work,
            n: outputs as u32,
            rows: self.rows as u32,
            k: inputs as u32,
            slices: self.slices as u32,
            rows_per_input: if self.experts.is_some() { 2 } else { 1 },
            bf16_results: 0,
        };
        let items = self.experts.map_or(tiles[1], |work| work.items.bytes() / 16);
        let grid = [tiles[0], self.slices, items].map(|side| side as u32);
        let shape = LaunchShape { grid, threads: self.kernel.threads, shared_bytes: self.kernel.shared };
        bench.stream.launch(&self.kernel.f32, shape, &arguments).expect("a launch");
        bench.download(&y)
    }
}

/// Rows of random bf16.
fn random_rows(random: &mut Random, bench: &Bench, values: usize) -> Buffer {
    let bytes: Vec<u8> = (0..values).flat_map(|_| narrow(random.unit()).to_le_bytes()).collect();
    bench.upload(&bytes)
}

/// Compares one product with the plain kernel's over the unpacked matrix.
fn assert_same_bits(bench: &Bench, random: &mut Random, form: PackedForm, kernel: &LinearKernel, case: Case) {
    let Case { outputs, inputs, rows, slices } = case;
    let matrix = Matrix::random(random, form, [1, outputs, inputs]);
    let packed = bench.upload(&matrix.bytes);
    let plain = matrix.unpacked(bench, &packed);
    let x = random_rows(random, bench, rows * inputs);
    let product = |kernel, w: &Buffer| {
        let product = Product { matrix: &matrix, kernel, w: w.address(), x: &x, rows, slices, experts: None };
        product.results(bench)
    };
    let same = product(kernel, &packed) == product(&bench.kernels.products.linear[0], &plain);
    assert!(same, "{form:?}, {case:?}, {}", kernel.name);
}

#[derive(Clone, Copy, Debug)]
struct Case {
    outputs: usize,
    inputs: usize,
    rows: usize,
    slices: usize,
}

#[test]
fn a_packed_product_has_the_bits_of_the_plain_one_whatever_its_shape() {
    let Some(bench) = Bench::open() else { return };
    let mut random = Random(7);
    for form in PackedForm::ALL {
        for (tile, kernel) in bench.kernels.products.every_tile(Form::Packed(form)).enumerate() {
            let any = Case {
                outputs: 4 * (1 + random.below(40)),
                inputs: 32 * (1 + random.below(12)),
                rows: 1 + random.below(kernel.rows * 5 / 4),
                slices: 1 + (tile + random.below(2)) % 4,
            };
            // More stages than any kernel holds at once, and half a record at the end.
            let long = Case { outputs: 20, inputs: 1184, rows: 3, slices: 1 };
            for case in [any, long] {
                assert_same_bits(&bench, &mut random, form, kernel, case);
            }
        }
    }
}

/// Rows sorted by expert, and the tiles that they are multiplied in.
struct Work {
    lists: Buffer,
    items: Buffer,
}

impl Work {
    fn new(bench: &Bench, rows_of: &[Vec<u32>], tile: usize) -> Self {
        let (mut lists, mut items) = (Vec::new(), Vec::new());
        for (expert, rows) in rows_of.iter().enumerate() {
            for rows in rows.chunks(tile) {
                items.extend([expert as u32, lists.len() as u32, rows.len() as u32, 0]);
                lists.extend_from_slice(rows);
            }
        }
        items.extend([0; 4]);
        let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        Self { lists: bench.upload(&bytes(&lists)), items: bench.upload(&bytes(&items)) }
    }
}

#[test]
fn packed_experts_compute_the_rows_of_their_lists() {
    let Some(bench) = Bench::open() else { return };
    let mut random = Random(11);
    for form in PackedForm::ALL {
        let (experts, pairs) = (3, 50);
        let matrix = Matrix::random(&mut random, form, [experts, 36, 96]);
        let mut rows_of = vec![Vec::new(); experts];
        (0..pairs).for_each(|pair| rows_of[random.below(experts)].push(pair));
        let packed = bench.upload(&matrix.bytes);
        let plain = matrix.unpacked(&bench, &packed);
        let x = random_rows(&mut random, &bench, pairs as usize / 2 * matrix.inputs);
        let product = |kernel: &LinearKernel, w: &Buffer| {
            let work = Work::new(&bench, &rows_of, kernel.rows);
            let (w, rows, slices, experts) = (w.address(), pairs as usize, 1, Some(&work));
            Product { matrix: &matrix, kernel, w, x: &x, rows, slices, experts }.results(&bench)
        };
        let expected = product(&bench.kernels.products.linear[1], &plain);
        for kernel in bench.kernels.products.every_tile(Form::Packed(form)) {
            assert!(product(kernel, &packed) == expected, "{form:?}, {}", kernel.name);
        }
    }
}

#[test]
fn rows_of_a_packed_table_are_its_unpacked_ones() {
    let Some(bench) = Bench::open() else { return };
    let mut random = Random(13);
    for form in PackedForm::ALL {
        let matrix = Matrix::random(&mut random, form, [1, 50, 96]);
        let packed = bench.upload(&matrix.bytes);
        let tokens = [0u32, 7, 8, 15, 16, 49, 31];
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        let (list, hidden) = (bench.upload(&bytes), bench.allocate(tokens.len() * 96 * 4));
        let arguments = EmbedPacked {
            tokens: list.address(),
            chosen: list.address(),
            table: packed.address(),
            strip_scales: matrix.strip_scales(packed.address(), 0),
            hidden: hidden.address(),
            width: 96,
            vocab: 50,
            scale: 3.0,
        };
        let shape = LaunchShape { grid: [tokens.len() as u32, 1, 1], threads: 128, shared_bytes: 0 };
        let embed = &bench.kernels.products.packed(form).embed;
        bench.stream.launch(embed, shape, &arguments).expect("a launch");
        let plain = words(&bench.download(&matrix.unpacked(&bench, &packed)));
        let want: Vec<u32> = tokens
            .iter()
            .flat_map(|token| plain[*token as usize * 96..][..96].iter())
            .map(|bits| (f32::from_bits(u32::from(*bits) << 16) * 3.0).to_bits())
            .collect();
        let got = bench.download(&hidden);
        let got: Vec<u32> = got.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        assert_eq!(got, want, "{form:?}");
    }
}

#[test]
fn a_case_has_the_reference_s_bits_by_every_kernel_and_measures_them() {
    let Some(options) = emulator::options() else { return };
    let form = PackedForm::ALL[0];
    let laboratory = ProductBench::open(&options, &[form]).expect("a GPU");
    let trial = ProductCase { form, outputs: 80, inputs: 192, slices: 2, results: Results::Bf16, rows: 8 };
    let prepared = laboratory.prepare(trial).expect("memory");
    let mut kernels = laboratory.kernels(form).filter(|kernel| kernel.rows == trial.rows);
    let expected = prepared.results(kernels.next().expect("a reference")).expect("a launch");
    assert!(words(&expected).iter().all(|half| half & 0x7fff <= 0x7f80), "every result is written");
    for kernel in kernels {
        assert!(prepared.results(kernel).expect("a launch") == expected, "{}", kernel.name);
        assert!(prepared.microseconds(kernel).expect("a launch") > 0.0);
    }
}
