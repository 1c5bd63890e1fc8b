//! The driver's functions by name, and its statuses as errors.

#![allow(unsafe_code, reason = "the driver is a C library")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// Declares a table of a library's functions, loaded by name. All of them return a status.
macro_rules! functions {
    ($(#[$doc:meta])* $table:ident { $($field:ident = $symbol:literal($($argument:ty),*);)* }) => {
        $(#[$doc])*
        pub(crate) struct $table {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) -> c_int,)*
            /// Keeps the functions where they are.
            _library: $crate::libraries::Opened,
        }
        impl $table {
            pub(crate) fn load(library: $crate::libraries::Opened) -> Result<Self, $crate::libraries::LibraryError> {
                // SAFETY: the signatures are those of the library's documentation, and the library lives as long as the table.
                $(let $field = unsafe { library.function($symbol)? };)*
                Ok(Self { $($field,)* _library: library })
            }
        }
    };
}
pub(crate) use functions;

/// The driver's name for something.
pub(crate) type Handle = *mut c_void;

/// How a kernel is launched, as the driver declares it.
#[repr(C)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared_bytes: c_uint,
    pub(crate) stream: Handle,
    pub(crate) attributes: *const LaunchAttribute,
    pub(crate) attribute_count: c_uint,
}

/// Something particular about a launch, as the driver declares it: an id, and a value within 64 bytes.
#[repr(C)]
pub(crate) struct LaunchAttribute {
    pub(crate) id: c_int,
    pub(crate) padding: c_int,
    pub(crate) value: [c_int; 16],
}

functions! {
    /// What is used of the driver.
    Api {
        init = "cuInit"(c_uint);
        driver_version = "cuDriverGetVersion"(*mut c_int);
        device_count = "cuDeviceGetCount"(*mut c_int);
        device_get = "cuDeviceGet"(*mut c_int, c_int);
        device_name = "cuDeviceGetName"(*mut c_char, c_int, c_int);
        device_attribute = "cuDeviceGetAttribute"(*mut c_int, c_int, c_int);
        context_create = "cuCtxCreate_v2"(*mut Handle, c_uint, c_int);
        context_destroy = "cuCtxDestroy_v2"(Handle);
        context_set = "cuCtxSetCurrent"(Handle);
        context_pop = "cuCtxPopCurrent_v2"(*mut Handle);
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
        function_parameter = "cuFuncGetParamInfo"(Handle, usize, *mut usize, *mut usize);
        launch = "cuLaunchKernelEx"(*const LaunchConfig, Handle, *mut *mut c_void, *mut *mut c_void);
        tensor_encode = "cuTensorMapEncodeTiled"(
            *mut c_void, c_int, c_uint, u64, *const u64, *const u64, *const c_uint, *const c_uint, c_int, c_int, c_int, c_int
        );
        error_text = "cuGetErrorString"(c_int, *mut *const c_char);
    }
}

/// Not enough memory.
const OUT_OF_MEMORY: c_int = 2;
/// Statuses after which every further call fails: the context must be made anew.
const LOST: [c_int; 16] = [46, 201, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 999];

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

pub(super) fn check(api: &Api, call: &'static str, status: c_int) -> Result<(), DriverError> {
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
