//! Every kernel compiled for every generation that is supported, where NVRTC is installed (`pip install nvidia-cuda-nvrtc`, and its folder in
//! `ROPEWAY_CUDA_LIBS`); no GPU is needed.

use std::collections::HashSet;

use ropeway_cuda::attention::{DecodeForm, PromptForm};
use ropeway_cuda::compile::{Compiler, KernelSource};
use ropeway_cuda::encoder::kernels::{EncoderConstants, sources as encoder_sources};
use ropeway_cuda::kernels::{KernelConstants, linear_warpgroups_source, sources};
use ropeway_cuda::kv::KvForm;
use ropeway_cuda::libraries::Search;
use ropeway_cuda::packed::{PackedForm, packed_source, warpgroups_source};

/// Bytes that NVRTC 13.0 keeps in memory where nvcc of the same version keeps none.
const SPILLS_OF_PACKED: usize = 16;
/// The same of attention over 8-bit keys and values: a few scalars of `attend_rows`, whose blocks have 12 warps with heads of 64 values.
const SPILLS_OF_QUANTS: usize = 32;
/// Bytes of registers that a kernel may keep in memory. Heads of 256 values need more than there are registers.
const SPILLS: usize = 256;
const SPILLS_OF_LARGE_HEADS: usize = 4096;

/// The largest number before `bytes spill stores` in a compiler's log.
fn spills(log: &str) -> usize {
    let before =
        |line: &str| line.split("bytes spill stores").next()?.split_whitespace().last()?.parse().ok();
    log.lines().filter(|line| line.contains("bytes spill stores")).filter_map(before).max().unwrap_or(0)
}

#[test]
fn every_kernel_compiles_for_every_generation_and_spills_little() {
    for (capability, shared_bytes) in
        [(80, 166_912), (86, 101_376), (90, 232_448), (100, 232_448), (120, 101_376)]
    {
        let library = match Search::from_environment().compiler(13) {
            Ok(library) => library,
            Err(missing) => return println!("skipped: {missing}"),
        };
        let compiler = Compiler::new(library, capability, None).expect("a compiler");
        let mut compiled_before = HashSet::new();
        for (head_dim, hidden, capped) in
            [(32, 384, false), (64, 576, false), (128, 4096, false), (256, 2304, true)]
        {
            let encoder = (head_dim <= 128)
                .then(|| encoder_sources(EncoderConstants { hidden, head_dim, shared_bytes }));
            let packed = PackedForm::ALL.into_iter().map(|form| packed_source(form, shared_bytes));
            let mut all: Vec<KernelSource> = encoder.into_iter().flatten().chain(packed).collect();
            let forms_of =
                |kv| DecodeForm::possible(capability, head_dim, kv).iter().map(move |form| (kv, *form));
            for (kv, decode_form) in KvForm::ALL.into_iter().flat_map(forms_of) {
                let constants = KernelConstants { head_dim, hidden, capped, kv, decode_form, shared_bytes };
                match sources(constants, PromptForm::Warps) {
                    Ok(decoder) => all.extend(decoder),
                    // Heads of 256 values need more shared memory than cards for gaming have.
                    Err(error) => assert!(head_dim == 256 && shared_bytes < 132 << 10, "{error}"),
                }
            }
            for source in all {
                if !compiled_before.insert((source.text.clone(), source.defines.clone())) {
                    continue;
                }
                let compiled = compiler.compiled(&source).unwrap_or_else(|error| panic!("{error}"));
                let spilled = spills(&compiled.log);
                let bound = match source.name {
                    "packed" if capability == 90 => SPILLS_OF_PACKED,
                    _ if head_dim > 128 => SPILLS_OF_LARGE_HEADS,
                    _ if source.defines.iter().any(|define| define == "KV8=1") => SPILLS_OF_QUANTS,
                    _ => SPILLS,
                };
                assert!(
                    spilled <= bound,
                    "{} for {capability}, heads of {head_dim}: {spilled} bytes",
                    source.name
                );
                assert!(!compiled.image.is_empty());
            }
        }
    }
}

#[test]
fn prompts_on_hopper_spill_nothing_and_their_products_run_side_by_side() {
    let library = match Search::from_environment().compiler(13) {
        Ok(library) => library,
        Err(missing) => return println!("skipped: {missing}"),
    };
    let compiler = Compiler::new(library, 90, None).expect("a compiler");
    let shapes = [(64, false), (64, true), (128, false), (128, true)];
    for ((head_dim, capped), kv) in shapes.into_iter().flat_map(|one| KvForm::ALL.map(|kv| (one, kv))) {
        let constants = KernelConstants {
            head_dim,
            hidden: 4096,
            capped,
            kv,
            decode_form: DecodeForm::Threads,
            shared_bytes: 232_448,
        };
        let shape = constants.attend_shape().expect("a Hopper");
        let source = PromptForm::Warpgroups.source(constants, &shape);
        let log = compiler.compiled(&source).unwrap_or_else(|error| panic!("{error}")).log;
        assert_eq!(spills(&log), 0, "{kv:?}, heads of {head_dim}: {log}");
        // Where the compiler can't keep products apart from other uses of their registers, it warns and waits after each of them.
        assert!(
            !log.contains("warning") && !log.contains("serialized"),
            "{kv:?}, heads of {head_dim}: {log}"
        );
    }
}

#[test]
fn products_by_warpgroups_spill_nothing_and_run_behind_copies_and_unpacking() {
    let library = match Search::from_environment().compiler(13) {
        Ok(library) => library,
        Err(missing) => return println!("skipped: {missing}"),
    };
    let compiler = Compiler::new(library, 90, None).expect("a compiler");
    for source in PackedForm::ALL.map(warpgroups_source).into_iter().chain([linear_warpgroups_source()]) {
        let log = compiler.compiled(&source).unwrap_or_else(|error| panic!("{error}")).log;
        assert_eq!(spills(&log), 0, "{}, {:?}: {log}", source.name, source.defines);
        assert!(!log.contains("warning") && !log.contains("serialized"), "{}: {log}", source.name);
        println!("{}, {:?}: {log}", source.name, source.defines);
    }
}
