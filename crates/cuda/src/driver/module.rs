//! Kernels: compiled code, its entries, and what they are launched with.

#![allow(unsafe_code, reason = "the driver is a C library")]

use std::ffi::{CString, c_int};
use std::sync::Arc;

use super::{Device, DriverError, Handle};

/// The attribute that allows a kernel more dynamic shared memory.
const DYNAMIC_SHARED: c_int = 8;

/// How many threads run a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchShape {
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
/// The type is `#[repr(C)]`, plain data without padding that matters, and what the kernel declares: debug builds compare its size with what the driver knows.
pub unsafe trait Arguments: Copy {}

impl Device {
    /// Loads compiled kernels.
    pub fn module(&self, image: &[u8]) -> Result<Module, DriverError> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the image is a cubin, whose headers tell its length.
        let status = unsafe { (self.api().module_load)(&raw mut handle, image.as_ptr().cast()) };
        self.check("cuModuleLoadData", status)?;
        Ok(Module(Arc::new(LoadedModule { device: self.clone(), handle })))
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
        unsafe { (self.device.api().module_unload)(self.handle) };
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
            unsafe { (device.api().module_function)(&raw mut handle, self.0.handle, symbol.as_ptr()) };
        device.check("cuModuleGetFunction", status)?;
        if shared_bytes > 0 {
            // SAFETY: the function was just found.
            let status =
                unsafe { (device.api().function_set)(handle, DYNAMIC_SHARED, shared_bytes as c_int) };
            device.check("cuFuncSetAttribute", status)?;
        }
        Ok(Function { module: self.clone(), handle, name })
    }
}

/// A kernel.
pub struct Function {
    module: Module,
    handle: Handle,
    name: &'static str,
}

// SAFETY: a function may be launched from any thread.
unsafe impl Send for Function {}

impl Function {
    /// The driver's name for it.
    pub(super) fn handle(&self) -> Handle {
        self.handle
    }

    /// Bytes of the structure that it takes.
    pub(super) fn parameter_bytes(&self) -> usize {
        let (mut offset, mut bytes) = (0, 0);
        let api = self.module.0.device.api();
        // SAFETY: the function is alive as long as its module, and the pointers are to locals.
        unsafe { (api.function_parameter)(self.handle, 0, &raw mut offset, &raw mut bytes) };
        bytes
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}
