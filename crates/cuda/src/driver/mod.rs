//! The CUDA driver: the one place that calls it, and owners for what it hands out.
//!
//! ```text
//! Device ── a GPU and its context                Buffer   memory of the device
//!    ├── Stream ── Event, Graph                  Pinned   memory of the host that the device copies from and to
//!    └── Module ── Function                      Address  a place in device memory, as kernels take it
//! ```
//! Errors of the driver are [`DriverError`]s; those after which the context is lost say so. Everything here is freed when it is dropped.
//! It must never know about models or steps.
//!
//! # Layout
//! - `api`: functions and statuses; this file: devices.
//! - `ending`: how a process that uses a GPU ends; `memory`: of the device and of the host; `stream`: queued work; `module`:
//!   kernels; `tensor`: matrices as TMA knows them.

#![allow(unsafe_code, reason = "the driver is a C library")]

mod api;
mod ending;
mod memory;
mod module;
mod stream;
mod tensor;

use std::ffi::{CStr, c_char, c_int};
use std::sync::{Arc, Mutex, PoisonError, Weak};

pub use self::api::DriverError;
use self::api::{Api, check};
pub(crate) use self::api::{Handle, functions};
pub use self::ending::{end_process, needs_new_process};
pub use self::memory::{Address, Buffer, Pinned};
pub use self::module::{Arguments, Function, LaunchShape, Module};
pub use self::stream::{Event, Graph, Stream};
pub use self::tensor::{Matrix, TensorMap};
use crate::libraries::{LibraryError, Search};

/// Constants of the driver's interface.
const ATTRIBUTE_MULTIPROCESSORS: c_int = 16;
const ATTRIBUTE_CAPABILITY_MAJOR: c_int = 75;
const ATTRIBUTE_CAPABILITY_MINOR: c_int = 76;
const ATTRIBUTE_SHARED_OPT_IN: c_int = 97;

/// What a device can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// What it is called.
    pub name: String,
    /// Compute capability, major and minor as one number: 90 for 9.0.
    pub capability: u32,
    /// How many multiprocessors it has.
    pub multiprocessors: u32,
    /// Bytes of shared memory that a block may have.
    pub shared_bytes: usize,
    /// The newest CUDA version that the driver knows, as 1000 * major + 10 * minor.
    pub driver_version: i32,
}

/// Free and total bytes of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes that can be allocated.
    pub free: usize,
    /// Bytes that the device has.
    pub total: usize,
}

/// A GPU with a context that all models of the process share there: kernels of several contexts would take turns, and a loss is everyone's
/// anyway. Cheap to clone.
#[derive(Clone)]
pub struct Device(Arc<Context>);

/// The contexts that are in use, by the number of their GPU.
static CONTEXTS: Mutex<Vec<(c_int, Weak<Context>)>> = Mutex::new(Vec::new());

struct Context {
    api: Api,
    handle: Handle,
    properties: Properties,
}

// SAFETY: the driver's functions may be called from any thread; the handle is a name, not memory of ours.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context was created by `open`; everything that lives in it keeps an `Arc` of it and is gone.
        unsafe { (self.api.context_destroy)(self.handle) };
    }
}

functions! {
    /// What every driver has, however old.
    VersionApi {
        version = "cuDriverGetVersion"(*mut c_int);
    }
}

/// The newest major version of CUDA that this machine's driver knows, 0 if it does not say. Needs no GPU that works.
pub fn driver_major(search: &Search) -> Result<i32, LibraryError> {
    let (api, mut version) = (VersionApi::load(search.driver()?)?, 0);
    // SAFETY: the pointer is to a local.
    unsafe { (api.version)(&raw mut version) };
    Ok(version / 1000)
}

impl Context {
    fn create(search: &Search, ordinal: c_int) -> Result<Self, DeviceError> {
        let api = Api::load(search.driver()?)?;
        ending::opened();
        // SAFETY: every pointer is to a local of the type that the driver writes.
        unsafe {
            check(&api, "cuInit", (api.init)(0))?;
            let mut count = 0;
            check(&api, "cuDeviceGetCount", (api.device_count)(&raw mut count))?;
            if ordinal >= count {
                return Err(DeviceError::NoSuchDevice { wanted: ordinal, count });
            }
            let mut device = 0;
            check(&api, "cuDeviceGet", (api.device_get)(&raw mut device, ordinal))?;
            let properties = properties(&api, device)?;
            let mut handle = std::ptr::null_mut();
            let created = check(&api, "cuCtxCreate", (api.context_create)(&raw mut handle, 0, device));
            created.inspect_err(|error| {
                if error.is_lost() {
                    ending::refused();
                }
            })?;
            ending::served();
            // What is created is also pushed; threads enter it when they use it.
            let mut pushed = std::ptr::null_mut();
            check(&api, "cuCtxPopCurrent", (api.context_pop)(&raw mut pushed))?;
            Ok(Self { api, handle, properties })
        }
    }
}

impl Device {
    /// Opens the driver, and the GPU with this number.
    pub fn open(search: &Search, ordinal: usize) -> Result<Self, DeviceError> {
        let ordinal = ordinal as c_int;
        let mut contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        let used = contexts.iter().filter(|(number, _)| *number == ordinal);
        let mut used = used.filter_map(|(_, context)| context.upgrade().map(Self));
        if let Some(device) = used.find(|device| device.make_current().and(device.memory()).is_ok()) {
            return Ok(device);
        }
        let device = Self(Arc::new(Context::create(search, ordinal)?));
        contexts.retain(|(_, context)| context.strong_count() > 0);
        contexts.push((ordinal, Arc::downgrade(&device.0)));
        device.make_current()?;
        Ok(device)
    }

    /// Makes this thread's further calls go to this device. To be called by every thread before it uses anything of it.
    pub fn make_current(&self) -> Result<(), DriverError> {
        // SAFETY: the context is alive as long as `self`.
        self.check("cuCtxSetCurrent", unsafe { (self.0.api.context_set)(self.0.handle) })
    }

    /// What it can do.
    pub fn properties(&self) -> &Properties {
        &self.0.properties
    }

    /// How much memory it has left.
    pub fn memory(&self) -> Result<MemoryInfo, DriverError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both pointers are to locals.
        let status = unsafe { (self.0.api.memory_info)(&raw mut free, &raw mut total) };
        self.check("cuMemGetInfo", status)?;
        Ok(MemoryInfo { free, total })
    }

    fn api(&self) -> &Api {
        &self.0.api
    }

    fn check(&self, call: &'static str, status: c_int) -> Result<(), DriverError> {
        check(&self.0.api, call, status)
    }
}

/// A device that can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// Its libraries.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The driver.
    #[error("the NVIDIA driver reports an error: {0}")]
    Driver(#[from] DriverError),
    /// No GPU with this number.
    #[error("there is no GPU number {wanted}: this machine has {count}; the first is `cuda:0`")]
    NoSuchDevice {
        /// What was asked for.
        wanted: i32,
        /// How many there are.
        count: i32,
    },
}

fn properties(api: &Api, device: c_int) -> Result<Properties, DriverError> {
    let attribute = |attribute| {
        let mut value = 0;
        // SAFETY: the pointer is to a local.
        let status = unsafe { (api.device_attribute)(&raw mut value, attribute, device) };
        check(api, "cuDeviceGetAttribute", status).map(|()| value)
    };
    let (mut name, mut driver_version) = ([0 as c_char; 128], 0);
    // SAFETY: the driver writes at most as many bytes as it is told, with a zero at the end.
    let name = unsafe {
        check(api, "cuDeviceGetName", (api.device_name)(name.as_mut_ptr(), 127, device))?;
        check(api, "cuDriverGetVersion", (api.driver_version)(&raw mut driver_version))?;
        CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()
    };
    let capability = attribute(ATTRIBUTE_CAPABILITY_MAJOR)? * 10 + attribute(ATTRIBUTE_CAPABILITY_MINOR)?;
    Ok(Properties {
        name,
        capability: capability as u32,
        multiprocessors: attribute(ATTRIBUTE_MULTIPROCESSORS)? as u32,
        shared_bytes: attribute(ATTRIBUTE_SHARED_OPT_IN)? as usize,
        driver_version,
    })
}
