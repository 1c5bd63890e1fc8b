//! Leases on real threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use ropeway_executor::Class;
use ropeway_kernels::Isa;
use ropeway_kernels::compute::ComputeSource;
use ropeway_machine::{LeaseRequest, Machine, Threads};

fn machine(threads: usize) -> Machine {
    Machine::new(Isa::reference(), Threads::UpTo(threads))
}

#[test]
fn one_computes_at_a_time_and_everyone_gets_on() {
    let machine = machine(2);
    let (inside, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for user in 0..6 {
            let (machine, inside, done) = (&machine, &inside, &done);
            scope.spawn(move || {
                let mut tenant = machine.join(3, 64);
                let class = Class::ALL[user % 3];
                for step in 0..150 {
                    let request =
                        LeaseRequest { class, yields: user % 2 == 0, size: step, ..Default::default() };
                    let mut lease = tenant.lease(request);
                    for _ in 0..3 {
                        lease.start_layer();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        lease.compute().for_each(4, 1, &|_, scratch| assert!(scratch.len() >= 64));
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                    drop(lease);
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(done.into_inner(), 900);
}

#[test]
fn a_panic_in_a_leased_step_ends_that_lease_only() {
    let machine = machine(2);
    let mut tenant = machine.join(2, 0);
    for _ in 0..3 {
        let crashed = catch_unwind(AssertUnwindSafe(|| {
            let mut lease = tenant.lease(LeaseRequest::default());
            lease.compute().pool().run(&|_| panic!("a bug in a kernel"));
        }));
        assert!(crashed.is_err());
    }
    let calls = AtomicUsize::new(0);
    let mut other = machine.join(2, 0);
    other.lease(LeaseRequest::default()).compute().pool().run(&|_| {
        calls.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(calls.into_inner(), 2);
}

#[test]
fn a_pass_that_yields_lets_a_waiting_urgent_step_go_between_its_layers() {
    let (machine, order) = (machine(1), Mutex::new(Vec::new()));
    let (mut pass, mut step) = (machine.join(2, 0), machine.join(2, 0));
    std::thread::scope(|scope| {
        let bulk = LeaseRequest { class: Class::Bulk, yields: true, ..Default::default() };
        let mut lease = pass.lease(bulk);
        lease.start_layer();
        order.lock().expect("order").push("layer 0");
        scope.spawn(|| {
            let _lease = step.lease(LeaseRequest { class: Class::Interactive, ..Default::default() });
            order.lock().expect("order").push("step");
        });
        while machine.waiting() == 0 {
            std::thread::yield_now();
        }
        lease.start_layer();
        order.lock().expect("order").push("layer 1");
    });
    assert_eq!(order.into_inner().expect("order"), ["layer 0", "step", "layer 1"]);
}

#[test]
fn a_step_that_does_not_yield_is_leased_whole() {
    let (machine, order) = (machine(1), Mutex::new(Vec::new()));
    let (mut whole, mut other) = (machine.join(2, 0), machine.join(2, 0));
    std::thread::scope(|scope| {
        let mut lease = whole.lease(LeaseRequest { class: Class::Bulk, ..Default::default() });
        scope.spawn(|| {
            let _lease = other.lease(LeaseRequest { class: Class::Interactive, ..Default::default() });
            order.lock().expect("order").push("other");
        });
        while machine.waiting() == 0 {
            std::thread::yield_now();
        }
        for _ in 0..3 {
            lease.start_layer();
            order.lock().expect("order").push("layer");
        }
    });
    assert_eq!(order.into_inner().expect("order"), ["layer", "layer", "layer", "other"]);
}

#[test]
fn scratch_suits_the_most_demanding_tenant() {
    let machine = machine(2);
    let (mut small, mut large) = (machine.join(1, 10), machine.join(1, 100_000));
    for tenant in [&mut small, &mut large] {
        tenant.lease(LeaseRequest::default());
    }
    assert!(small.lease(LeaseRequest::default()).compute().scratch_bytes() >= 100_000);
}

#[test]
fn exact_threads_are_never_changed() {
    let machine = Machine::new(Isa::reference(), Threads::Exactly(3));
    let mut tenant = machine.join(30, 0);
    for _ in 0..20 {
        let mut lease = tenant.lease(LeaseRequest { size: 1, ..Default::default() });
        for _ in 0..30 {
            lease.start_layer();
            assert_eq!(lease.compute().threads(), 3);
        }
    }
}
