//! Memory of the device and of the host.

#![allow(unsafe_code, reason = "the driver is a C library")]

use super::{Device, DriverError};

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

impl Device {
    /// Memory of the device, with whatever was in it.
    pub fn allocate(&self, bytes: usize) -> Result<Buffer, DriverError> {
        let mut address = 0;
        // SAFETY: the pointer is to a local.
        let status = unsafe { (self.api().memory_allocate)(&raw mut address, bytes.max(1)) };
        self.check("cuMemAlloc", status)?;
        Ok(Buffer { device: self.clone(), address: Address(address), bytes })
    }

    /// Memory of the host that the device copies from and to at full speed; zeros.
    pub fn allocate_pinned(&self, bytes: usize) -> Result<Pinned, DriverError> {
        let mut pointer = std::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        let status = unsafe { (self.api().host_allocate)(&raw mut pointer, bytes.max(1), 0) };
        self.check("cuMemHostAlloc", status)?;
        // SAFETY: the driver gave that many bytes.
        unsafe { pointer.cast::<u8>().write_bytes(0, bytes.max(1)) };
        Ok(Pinned { device: self.clone(), pointer: pointer.cast(), bytes })
    }
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
        unsafe { (self.device.api().memory_free)(self.address.0) };
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
        unsafe { (self.device.api().host_free)(self.pointer.cast()) };
    }
}
