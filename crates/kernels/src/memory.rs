//! Cache-line aligned, zeroed memory for weights, KV blocks and scratch.
//!
//! Large buffers ask the kernel for huge pages: a decode step streams all weights, and with 4 KiB pages the
//! hardware prefetcher stops at every page border.

#![allow(unsafe_code, reason = "aligned allocation and plain-data views of it")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Alignment of every buffer: one cache line, one 512-bit register.
pub const ALIGN: usize = 64;

/// Alignment that every allocator gives for nothing.
const PLAIN_ALIGN: usize = 8;

/// From this size on a buffer is aligned to, and asks for, huge pages.
const HUGE_PAGE: usize = 2 << 20;

/// Types whose all-zero bit pattern is a value and that own nothing.
///
/// # Safety
/// Implementors must be valid for every bit pattern and have no padding.
pub unsafe trait Plain: Copy + Send + Sync + 'static {}

macro_rules! plain {
    ($($t:ty),*) => {$(
        // SAFETY: primitive numbers are valid for every bit pattern and have no padding.
        unsafe impl Plain for $t {}
    )*};
}
plain!(u8, i8, u16, i16, u32, i32, f32, u64, i64);

/// A fixed-size aligned array of plain numbers, zero at first.
pub struct Buffer<T: Plain> {
    ptr: NonNull<T>,
    len: usize,
    /// The allocation, of which the array is the aligned part.
    base: NonNull<u8>,
    layout: Layout,
    owns: PhantomData<T>,
}

// SAFETY: the buffer owns its memory alone, and plain numbers may move and be shared between threads.
unsafe impl<T: Plain> Send for Buffer<T> {}
// SAFETY: as above; shared access is read-only through `Deref`.
unsafe impl<T: Plain> Sync for Buffer<T> {}

impl<T: Plain> Buffer<T> {
    /// A buffer of `len` zeros. Pages are touched only when used.
    pub fn zeroed(len: usize) -> Self {
        let bytes = len.checked_mul(size_of::<T>()).expect("buffer size overflows").max(ALIGN);
        let align = if bytes >= HUGE_PAGE { HUGE_PAGE } else { ALIGN };
        // Asking for the alignment itself would make the allocator write the zeros; with room to spare for it, fresh
        // pages come from the system as they are.
        let room = bytes.checked_add(align).expect("buffer size overflows");
        let layout = Layout::from_size_align(room, PLAIN_ALIGN).expect("buffer too large");
        // SAFETY: the layout has a non-zero size.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        // SAFETY: at most `align` bytes further, and `room` has that many to spare.
        let ptr = unsafe { base.add(base.align_offset(align)) };
        if align == HUGE_PAGE {
            advise_huge_pages(ptr.as_ptr(), bytes);
        }
        Self { ptr: ptr.cast(), len, base, layout, owns: PhantomData }
    }

    /// A pointer that several threads may write through, each to its own part.
    pub fn shared(&mut self) -> SharedMut<'_, T> {
        SharedMut::of(self)
    }
}

#[cfg(target_os = "linux")]
fn advise_huge_pages(ptr: *mut u8, bytes: usize) {
    // SAFETY: the range is exactly the allocation; the advice changes no content, and failure is harmless.
    unsafe { libc::madvise(ptr.cast(), bytes, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn advise_huge_pages(_ptr: *mut u8, _bytes: usize) {}

impl<T: Plain> Drop for Buffer<T> {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this very layout.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

impl<T: Plain> Deref for Buffer<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: `len` values were allocated and zeroed, and zero is a value of `T`.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl<T: Plain> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl<T: Plain> std::fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer<{}>[{}]", std::any::type_name::<T>(), self.len)
    }
}

/// A borrowed array whose disjoint parts are written by several threads of one parallel operation.
pub struct SharedMut<'a, T> {
    ptr: *mut T,
    len: usize,
    borrows: PhantomData<&'a mut [T]>,
}

impl<T> Clone for SharedMut<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SharedMut<'_, T> {}

// SAFETY: references come from `slice` and `array` only, whose contract keeps them apart; values may change threads.
unsafe impl<T: Send> Send for SharedMut<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SharedMut<'_, T> {}

impl<'a, T: Send> SharedMut<'a, T> {
    /// Borrows a slice for one parallel operation.
    pub fn of(slice: &'a mut [T]) -> Self {
        Self { ptr: slice.as_mut_ptr(), len: slice.len(), borrows: PhantomData }
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the value at `index`; what is done with it is the caller's proof.
    #[inline]
    pub fn at(&self, index: usize) -> *mut T {
        assert!(index < self.len, "index outside the array");
        self.ptr.wrapping_add(index)
    }

    /// The part `start..start + len`.
    ///
    /// # Safety
    /// Nothing else may refer to any of the same values during the returned borrow.
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "disjoint parts are handed out by contract")]
    pub unsafe fn slice(&self, start: usize, len: usize) -> &'a mut [T] {
        assert!(start <= self.len && len <= self.len - start, "part outside the array");
        // SAFETY: in bounds by the assertion; alive by the lifetime; exclusive by the caller's contract.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.add(start), len) }
    }

    /// The `N` values from `start` on, as an array.
    ///
    /// # Safety
    /// As for [`slice`](Self::slice).
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "disjoint parts are handed out by contract")]
    pub unsafe fn array<const N: usize>(&self, start: usize) -> &'a mut [T; N] {
        assert!(start <= self.len && N <= self.len - start, "part outside the array");
        // SAFETY: in bounds by the assertion; alive by the lifetime; exclusive by the caller's contract.
        unsafe { &mut *self.ptr.add(start).cast::<[T; N]>() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zeroed_aligned_and_writable() {
        for len in [0, 1, 17, HUGE_PAGE] {
            let mut buffer = Buffer::<f32>::zeroed(len);
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr().align_offset(ALIGN), 0);
            assert!(buffer.iter().all(|&x| x == 0.0));
            buffer.fill(2.0);
            assert!(buffer.iter().all(|&x| x == 2.0));
        }
    }

    #[test]
    #[should_panic(expected = "outside the array")]
    fn a_shared_part_outside_the_array_is_refused() {
        let mut data = [0u8; 8];
        let shared = SharedMut::of(&mut data);
        // SAFETY: the only user of `data`; the call panics before any access.
        let _ = unsafe { shared.slice(4, 5) };
    }
}
