//! The clock and the power of a GPU under load, by NVIDIA's management library (NVML): where power is the limit, clocks say how far off a
//! kernel is from what it would do without.

#![allow(unsafe_code, reason = "NVML is a C library")]

use std::ffi::{c_int, c_longlong, c_uint, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use libloading::Library;

type Device = *mut c_void;
type ReadClock = unsafe extern "C" fn(Device, c_int, *mut c_uint) -> c_int;
type ReadFields = unsafe extern "C" fn(Device, c_int, *mut Field) -> c_int;

/// Constants of NVML's interface.
const CLOCK_OF_MULTIPROCESSORS: c_int = 1;
const FIELD_POWER_NOW: c_uint = 186;

/// A value that is asked for, as NVML declares it.
#[repr(C)]
struct Field {
    id: c_uint,
    scope: c_uint,
    timestamp: c_longlong,
    latency: c_longlong,
    kind: c_uint,
    status: c_int,
    value: u64,
}

/// Time between two readings.
const PAUSE: Duration = Duration::from_millis(5);

/// A GPU's meter.
pub struct Meter {
    read_clock: ReadClock,
    read_fields: ReadFields,
    device: usize,
    _library: Library,
}

/// Averages over some time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Clock of the multiprocessors.
    pub megahertz: f64,
    /// Power.
    pub watts: f64,
}

impl Meter {
    /// The meter of the machine's first GPU; none where the library is missing.
    pub fn open() -> Option<Self> {
        // SAFETY: signatures are those of NVML's documentation; pointers are to locals; the library lives as long as its functions.
        unsafe {
            let library = Library::new("libnvidia-ml.so.1").ok()?;
            let init = *library.get::<unsafe extern "C" fn() -> c_int>(b"nvmlInit_v2").ok()?;
            let find = *library
                .get::<unsafe extern "C" fn(c_uint, *mut Device) -> c_int>(b"nvmlDeviceGetHandleByIndex_v2")
                .ok()?;
            let read_clock = *library.get::<ReadClock>(b"nvmlDeviceGetClockInfo").ok()?;
            let read_fields = *library.get::<ReadFields>(b"nvmlDeviceGetFieldValues").ok()?;
            let mut device = std::ptr::null_mut();
            (init() == 0 && find(0, &raw mut device) == 0).then_some(())?;
            Some(Self { read_clock, read_fields, device: device as usize, _library: library })
        }
    }

    /// Clock and power while `work` runs, if the GPU tells them.
    pub fn during<T>(&self, work: impl FnOnce() -> T) -> (T, Option<Load>) {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watching = scope.spawn(|| self.watch(&done));
            let watched = Watched(&done);
            let result = work();
            drop(watched);
            (result, watching.join().ok().flatten())
        })
    }

    fn watch(&self, done: &AtomicBool) -> Option<Load> {
        let (mut sum, mut count) = (Load::default(), 0);
        while !done.load(Ordering::Relaxed) {
            let Load { megahertz, watts } = self.read()?;
            (sum.megahertz, sum.watts, count) = (sum.megahertz + megahertz, sum.watts + watts, count + 1);
            std::thread::sleep(PAUSE);
        }
        let count = f64::from(count.max(1));
        Some(Load { megahertz: sum.megahertz / count, watts: sum.watts / count })
    }

    fn read(&self) -> Option<Load> {
        let device = self.device as Device;
        let mut megahertz = 0;
        let mut power =
            Field { id: FIELD_POWER_NOW, scope: 0, timestamp: 0, latency: 0, kind: 0, status: 0, value: 0 };
        // SAFETY: the device is NVML's own, and the pointers are to locals, of which there is one field.
        let read = unsafe {
            (self.read_clock)(device, CLOCK_OF_MULTIPROCESSORS, &raw mut megahertz) == 0
                && (self.read_fields)(device, 1, &raw mut power) == 0
                && power.status == 0
        };
        // The value is an unsigned int: milliwatts.
        let watts = f64::from(power.value as u32) * 1e-3;
        read.then_some(Load { megahertz: f64::from(megahertz), watts })
    }
}

/// Ends the watching when it is dropped, also by a panic.
struct Watched<'a>(&'a AtomicBool);

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
