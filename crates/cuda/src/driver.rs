//! The CUDA driver: the one place that calls it, and owners for what it hands out.
//!
//! ```text
//! Device ── a GPU and its primary context        Buffer   memory of the device
//!    ├── Stream ── Event, Graph                  Pinned   memory of the host that the device copies from and to
//!    └── Module ── Function                      Address  a place in device memory, as kernels take it
//! ```
//! Errors of the driver are [`DriverError`]s; those after which the context is lost say so. Everything here is freed when it is dropped.
//! It must never know about models or steps.

#![allow(unsafe_code, reason = "the driver is a C library")]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use crate::libraries::{LibraryError, Opened, Search};

/// Declares a table of a library's functions, loaded by name. All of them return a status.
macro_rules! functions {
    ($(#[$doc:meta])* $table:ident { $($field:ident = $symbol:literal($($argument:ty),*);)* }) => {
        $(#[$doc])*
        pub(crate) struct $table {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) -> c_int,)*
            /// Keeps the functions where they are.
            _library: Opened,
        }
        impl $table {
            pub(crate) fn load(library: Opened) -> Result<Self, $crate::libraries::LibraryError> {
                // SAFETY: the signatures are those of the library's documentation, and the library lives as long as the table.
                $(let $field = unsafe { library.function($symbol)? };)*
                Ok(Self { $($field,)* _library: library })
            }
        }
    };
}
pub(crate) use functions;

type Handle = *mut c_void;

functions! {
    /// What is used of the driver.
    Api {
        init = "cuInit"(c_uint);
        driver_version = "cuDriverGetVersion"(*mut c_int);
        device_count = "cuDeviceGetCount"(*mut c_int);
        device_get = "cuDeviceGet"(*mut c_int, c_int);
        device_name = "cuDeviceGetName"(*mut c_char, c_int, c_int);
        device_attribute = "cuDeviceGetAttribute"(*mut c_int, c_int, c_int);
        context_retain = "cuDevicePrimaryCtxRetain"(*mut Handle, c_int);
        context_release = "cuDevicePrimaryCtxRelease_v2"(c_int);
        context_reset = "cuDevicePrimaryCtxReset_v2"(c_int);
        context_set = "cuCtxSetCurrent"(Handle);
        memory_info = "cuMemGetInfo_v2"(*mut usize, *mut usize);
        memory_allocate = "cuMemAlloc_v2"(*mut u64, usize);
        memory_free = "cuMemFree_v2"(u64);
        host_allocate = "cuMemHostAlloc"(*mut Handle, usize, c_uint);
        host_free = "cuMemFreeHost"(Handle);
        copy_to_device = "cuMemcpyHtoDAsync_v2"(u64, *const c_void, usize, Handle);
        copy_to_host = "cuMemcpyDtoHAsync_v2"(Handle, u64, usize, Handle);
        set_bytes = "cuMemsetD8Async"(u64, u8, usize, Handle);
        stream_create = "cuStreamCreate"(*mut Handle, c_uint);
        stream_destroy = "cuStreamDestroy_v2"(Handle);
        stream_synchronize = "cuStreamSynchronize"(Handle);
        capture_begin = "cuStreamBeginCapture_v2"(Handle, c_int);
        capture_end = "cuStreamEndCapture"(Handle, *mut Handle);
        graph_instantiate = "cuGraphInstantiateWithFlags"(*mut Handle, Handle, u64);
        graph_launch = "cuGraphLaunch"(Handle, Handle);
        graph_destroy = "cuGraphDestroy"(Handle);
        executable_destroy = "cuGraphExecDestroy"(Handle);
        event_create = "cuEventCreate"(*mut Handle, c_uint);
        event_destroy = "cuEventDestroy_v2"(Handle);
        event_record = "cuEventRecord"(Handle, Handle);
        event_synchronize = "cuEventSynchronize"(Handle);
        event_elapsed = "cuEventElapsedTime"(*mut f32, Handle, Handle);
        module_load = "cuModuleLoadData"(*mut Handle, *const c_void);
        module_unload = "cuModuleUnload"(Handle);
        module_function = "cuModuleGetFunction"(*mut Handle, Handle, *const c_char);
        function_set = "cuFuncSetAttribute"(Handle, c_int, c_int);
        launch = "cuLaunchKernel"(Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void);
        error_text = "cuGetErrorString"(c_int, *mut *const c_char);
    }
}

/// Constants of the driver's interface.
const STREAM_NON_BLOCKING: c_uint = 1;
const CAPTURE_THREAD_LOCAL: c_int = 1;
const ATTRIBUTE_MULTIPROCESSORS: c_int = 16;
const ATTRIBUTE_CAPABILITY_MAJOR: c_int = 75;
const ATTRIBUTE_CAPABILITY_MINOR: c_int = 76;
const ATTRIBUTE_SHARED_OPT_IN: c_int = 97;
const FUNCTION_DYNAMIC_SHARED: c_int = 8;
const OUT_OF_MEMORY: c_int = 2;
/// Statuses after which every further call fails: the context must be made anew.
const LOST: [c_int; 10] = [46, 214, 700, 702, 714, 715, 716, 717, 718, 719];

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {text} (CUDA error {status})")]
pub struct DriverError {
    call: &'static str,
    status: i32,
    text: String,
}

impl DriverError {
    /// Whether nothing can be computed until the context is made anew.
    pub fn is_lost(&self) -> bool {
        LOST.contains(&self.status)
    }

    /// Whether the device had not enough memory.
    pub fn is_out_of_memory(&self) -> bool {
        self.status == OUT_OF_MEMORY
    }
}

/// A place in device memory, as kernels take it; 0 is nowhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Address(pub u64);

impl Address {
    /// Nowhere.
    pub const NULL: Address = Address(0);

    /// So many bytes further on.
    pub fn plus(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }
}

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

/// A GPU with its primary context. Cheap to clone.
#[derive(Clone)]
pub struct Device(Arc<Context>);

struct Context {
    api: Api,
    ordinal: c_int,
    handle: Handle,
    properties: Properties,
}

// SAFETY: the driver's functions may be called from any thread; the handle is a name, not memory of ours.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context was retained by `open`; everything that lives in it keeps an `Arc` of it and is gone.
        unsafe { (self.api.context_release)(self.ordinal) };
    }
}

impl Device {
    /// Opens the driver, and the GPU with this number.
    pub fn open(search: &Search, ordinal: usize) -> Result<Self, DeviceError> {
        let api = Api::load(search.driver()?)?;
        let ordinal = ordinal as c_int;
        // SAFETY: every pointer is to a local of the type that the driver writes.
        let context = unsafe {
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
            check(&api, "cuDevicePrimaryCtxRetain", (api.context_retain)(&raw mut handle, device))?;
            Context { api, ordinal: device, handle, properties }
        };
        let device = Self(Arc::new(context));
        device.enter()?;
        Ok(device)
    }

    /// Makes this thread's further calls go to this device. To be called by every thread before it uses anything of it.
    pub fn enter(&self) -> Result<(), DriverError> {
        // SAFETY: the context is alive as long as `self`.
        self.check("cuCtxSetCurrent", unsafe { (self.0.api.context_set)(self.0.handle) })
    }

    /// Throws away everything in the context after it was lost. What still refers to it must not be used but for dropping.
    pub fn reset(&self) -> Result<(), DriverError> {
        // SAFETY: the context is alive as long as `self`; a reset context is made anew by the next retain.
        self.check("cuDevicePrimaryCtxReset", unsafe { (self.0.api.context_reset)(self.0.ordinal) })
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

    /// Memory of the device, with whatever was in it.
    pub fn allocate(&self, bytes: usize) -> Result<Buffer, DriverError> {
        let mut address = 0;
        // SAFETY: the pointer is to a local.
        let status = unsafe { (self.0.api.memory_allocate)(&raw mut address, bytes.max(1)) };
        self.check("cuMemAlloc", status)?;
        Ok(Buffer { device: self.clone(), address: Address(address), bytes })
    }

    /// Memory of the host that the device copies from and to at full speed; zeros.
    pub fn allocate_pinned(&self, bytes: usize) -> Result<Pinned, DriverError> {
        let mut pointer = std::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        let status = unsafe { (self.0.api.host_allocate)(&raw mut pointer, bytes.max(1), 0) };
        self.check("cuMemHostAlloc", status)?;
        // SAFETY: the driver gave that many bytes.
        unsafe { pointer.cast::<u8>().write_bytes(0, bytes.max(1)) };
        Ok(Pinned { device: self.clone(), pointer: pointer.cast(), bytes })
    }

    /// A queue of work.
    pub fn stream(&self) -> Result<Stream, DriverError> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        let status = unsafe { (self.0.api.stream_create)(&raw mut handle, STREAM_NON_BLOCKING) };
        self.check("cuStreamCreate", status)?;
        Ok(Stream { device: self.clone(), handle })
    }

    /// A mark in a stream.
    pub fn event(&self) -> Result<Event, DriverError> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        self.check("cuEventCreate", unsafe { (self.0.api.event_create)(&raw mut handle, 0) })?;
        Ok(Event { device: self.clone(), handle })
    }

    /// Loads compiled kernels.
    pub fn module(&self, image: &[u8]) -> Result<Module, DriverError> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the image is a cubin, whose headers tell its length.
        let status = unsafe { (self.0.api.module_load)(&raw mut handle, image.as_ptr().cast()) };
        self.check("cuModuleLoadData", status)?;
        Ok(Module(Arc::new(LoadedModule { device: self.clone(), handle })))
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

fn check(api: &Api, call: &'static str, status: c_int) -> Result<(), DriverError> {
    if status == 0 {
        return Ok(());
    }
    let mut text = std::ptr::null();
    // SAFETY: the driver gives a string that lives for ever, or leaves the pointer null.
    let text = unsafe {
        (api.error_text)(status, &raw mut text);
        if text.is_null() { "unknown".into() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
    };
    Err(DriverError { call, status, text })
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

/// Memory of the device.
pub struct Buffer {
    device: Device,
    address: Address,
    bytes: usize,
}

impl Buffer {
    /// Where it is.
    pub fn address(&self) -> Address {
        self.address
    }

    /// How long it is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the address is the driver's own; work in flight that uses it is waited for by the driver.
        unsafe { (self.device.0.api.memory_free)(self.address.0) };
    }
}

/// Memory of the host that the device can copy from and to.
pub struct Pinned {
    device: Device,
    /// Aligned to pages.
    pointer: *mut u32,
    bytes: usize,
}

// SAFETY: the memory is owned, like a `Box<[u8]>`.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Its content. What the device is writing to it at this time is undefined until that is waited for.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the driver gave that many bytes, and `allocate_pinned` wrote all of them.
        unsafe { std::slice::from_raw_parts(self.pointer.cast(), self.bytes) }
    }

    /// Its content as words.
    pub fn words_mut(&mut self) -> &mut [u32] {
        debug_assert!(self.pointer.is_aligned(), "the driver gives whole pages");
        // SAFETY: as in `bytes_mut`; pages are aligned, and every pattern of bits is a word.
        unsafe { std::slice::from_raw_parts_mut(self.pointer, self.bytes / 4) }
    }

    /// Its content, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.cast(), self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the pointer is the driver's own.
        unsafe { (self.device.0.api.host_free)(self.pointer.cast()) };
    }
}

/// A queue of work: what is queued runs in order.
pub struct Stream {
    device: Device,
    handle: Handle,
}

// SAFETY: a stream may be used from any thread, one at a time or not.
unsafe impl Send for Stream {}

impl Stream {
    /// The device's name for it, for libraries that queue into it.
    pub(crate) fn handle(&self) -> *mut c_void {
        self.handle
    }

    /// The device that it belongs to.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Queues a copy of the first `bytes` of pinned memory, from `offset` on. They must stay as they are until it is done.
    pub fn upload(&self, to: Address, from: &Pinned, offset: usize, bytes: usize) -> Result<(), DriverError> {
        let source = &from.bytes()[offset..offset + bytes];
        // SAFETY: the source is pinned and in bounds; device addresses are the business of the device.
        let status =
            unsafe { (self.device.0.api.copy_to_device)(to.0, source.as_ptr().cast(), bytes, self.handle) };
        self.device.check("cuMemcpyHtoDAsync", status)
    }

    /// Queues a copy to the beginning of pinned memory.
    pub fn download(&self, to: &mut Pinned, from: Address, bytes: usize) -> Result<(), DriverError> {
        self.download_at(to, 0, from, bytes)
    }

    /// Queues a copy into pinned memory.
    pub fn download_at(
        &self,
        to: &mut Pinned,
        offset: usize,
        from: Address,
        bytes: usize,
    ) -> Result<(), DriverError> {
        let target = &mut to.bytes_mut()[offset..offset + bytes];
        // SAFETY: the target is pinned and in bounds.
        let status = unsafe {
            (self.device.0.api.copy_to_host)(target.as_mut_ptr().cast(), from.0, bytes, self.handle)
        };
        self.device.check("cuMemcpyDtoHAsync", status)
    }

    /// Queues filling memory with a byte.
    pub fn fill(&self, to: Address, value: u8, bytes: usize) -> Result<(), DriverError> {
        // SAFETY: device addresses are the business of the device.
        let status = unsafe { (self.device.0.api.set_bytes)(to.0, value, bytes, self.handle) };
        self.device.check("cuMemsetD8Async", status)
    }

    /// Waits until everything queued is done.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        // SAFETY: the stream is alive.
        let status = unsafe { (self.device.0.api.stream_synchronize)(self.handle) };
        self.device.check("cuStreamSynchronize", status)
    }

    /// Records what `work` queues into this stream instead of running it.
    pub fn capture<E: From<DriverError>>(&self, work: impl FnOnce() -> Result<(), E>) -> Result<Graph, E> {
        let api = &self.device.0.api;
        // SAFETY: the stream is alive, and nothing else queues into it meanwhile.
        let status = unsafe { (api.capture_begin)(self.handle, CAPTURE_THREAD_LOCAL) };
        self.device.check("cuStreamBeginCapture", status)?;
        let worked = work();
        let (mut graph, mut executable) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: capturing began above; the graph is destroyed once it is instantiated.
        let status = unsafe { (api.capture_end)(self.handle, &raw mut graph) };
        worked?;
        self.device.check("cuStreamEndCapture", status)?;
        // SAFETY: as above.
        let status = unsafe {
            let status = (api.graph_instantiate)(&raw mut executable, graph, 0);
            (api.graph_destroy)(graph);
            status
        };
        self.device.check("cuGraphInstantiate", status)?;
        Ok(Graph { device: self.device.clone(), handle: executable })
    }

    /// Queues a captured graph.
    pub fn launch_graph(&self, graph: &Graph) -> Result<(), DriverError> {
        // SAFETY: both are alive.
        let status = unsafe { (self.device.0.api.graph_launch)(graph.handle, self.handle) };
        self.device.check("cuGraphLaunch", status)
    }

    /// Queues a mark.
    pub fn record(&self, event: &Event) -> Result<(), DriverError> {
        // SAFETY: both are alive.
        let status = unsafe { (self.device.0.api.event_record)(event.handle, self.handle) };
        self.device.check("cuEventRecord", status)
    }

    /// Queues a kernel.
    pub fn launch<A: Arguments>(
        &self,
        function: &Function,
        shape: Shape,
        arguments: &A,
    ) -> Result<(), DriverError> {
        debug_assert!(shape.grid.iter().all(|side| *side > 0), "{function:?}: {shape:?}");
        let mut parameters = [std::ptr::from_ref(arguments).cast_mut().cast::<c_void>()];
        let [x, y, z] = shape.grid;
        // SAFETY: the kernel takes one structure of type `A`, which the driver copies before it returns.
        let status = unsafe {
            let shared = shape.shared_bytes as c_uint;
            let parameters = parameters.as_mut_ptr();
            let none = std::ptr::null_mut();
            (self.device.0.api.launch)(
                function.handle,
                x,
                y,
                z,
                shape.threads,
                1,
                1,
                shared,
                self.handle,
                parameters,
                none,
            )
        };
        self.device.check("cuLaunchKernel", status)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the handle is the driver's own.
        unsafe { (self.device.0.api.stream_destroy)(self.handle) };
    }
}

/// How many threads run a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub shared_bytes: usize,
}

/// The one argument of a kernel.
///
/// # Safety
/// The type is `#[repr(C)]`, plain data without padding that matters, and what the kernel declares: `tests/layout.rs` compares sizes.
pub unsafe trait Arguments: Copy {}

/// A mark in a stream.
pub struct Event {
    device: Device,
    handle: Handle,
}

// SAFETY: an event may be used from any thread.
unsafe impl Send for Event {}

impl Event {
    /// Waits until everything queued before the mark is done.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        // SAFETY: the event is alive.
        let status = unsafe { (self.device.0.api.event_synchronize)(self.handle) };
        self.device.check("cuEventSynchronize", status)
    }

    /// Seconds between an earlier mark and this one, both of which have passed.
    pub fn seconds_since(&self, earlier: &Event) -> Result<f64, DriverError> {
        let mut milliseconds = 0.0;
        // SAFETY: both events are alive, and the pointer is to a local.
        let status =
            unsafe { (self.device.0.api.event_elapsed)(&raw mut milliseconds, earlier.handle, self.handle) };
        self.device.check("cuEventElapsedTime", status)?;
        Ok(f64::from(milliseconds) * 1e-3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the handle is the driver's own.
        unsafe { (self.device.0.api.event_destroy)(self.handle) };
    }
}

/// Captured work that is launched as one.
pub struct Graph {
    device: Device,
    handle: Handle,
}

// SAFETY: a graph may be launched from any thread, one at a time.
unsafe impl Send for Graph {}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: the handle is the driver's own.
        unsafe { (self.device.0.api.executable_destroy)(self.handle) };
    }
}

/// Compiled kernels.
#[derive(Clone)]
pub struct Module(Arc<LoadedModule>);

struct LoadedModule {
    device: Device,
    handle: Handle,
}

// SAFETY: a module may be used from any thread.
unsafe impl Send for LoadedModule {}
// SAFETY: as above.
unsafe impl Sync for LoadedModule {}

impl Drop for LoadedModule {
    fn drop(&mut self) {
        // SAFETY: the handle is the driver's own; functions keep the module alive.
        unsafe { (self.device.0.api.module_unload)(self.handle) };
    }
}

impl Module {
    /// A kernel, allowed `shared_bytes` of dynamic shared memory.
    pub fn function(&self, name: &'static str, shared_bytes: usize) -> Result<Function, DriverError> {
        let device = &self.0.device;
        let symbol = CString::new(name).unwrap_or_default();
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointer is to a local, and the name ends with a zero.
        let status =
            unsafe { (device.0.api.module_function)(&raw mut handle, self.0.handle, symbol.as_ptr()) };
        device.check("cuModuleGetFunction", status)?;
        if shared_bytes > 0 {
            // SAFETY: the function was just found.
            let status = unsafe {
                (device.0.api.function_set)(handle, FUNCTION_DYNAMIC_SHARED, shared_bytes as c_int)
            };
            device.check("cuFuncSetAttribute", status)?;
        }
        Ok(Function { _module: self.clone(), handle, name })
    }
}

/// A kernel.
pub struct Function {
    _module: Module,
    handle: Handle,
    name: &'static str,
}

// SAFETY: a function may be launched from any thread.
unsafe impl Send for Function {}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}
