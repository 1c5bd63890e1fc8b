//! Queued work: copies, kernels, captured graphs, and marks between them.

#![allow(unsafe_code, reason = "the driver is a C library")]

use std::ffi::{c_int, c_uint, c_void};

use super::api::{LaunchAttribute, LaunchConfig};
use super::{Address, Arguments, Device, DriverError, Function, Handle, LaunchShape, Pinned};

/// Constants of the driver's interface.
const STREAM_NON_BLOCKING: c_uint = 1;
const CAPTURE_THREAD_LOCAL: c_int = 1;

impl Device {
    /// A queue of work.
    pub fn stream(&self) -> Result<Stream, DriverError> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        let status = unsafe { (self.api().stream_create)(&raw mut handle, STREAM_NON_BLOCKING) };
        self.check("cuStreamCreate", status)?;
        Ok(Stream { device: self.clone(), handle })
    }

    /// A mark in a stream.
    pub fn event(&self) -> Result<Event, DriverError> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        self.check("cuEventCreate", unsafe { (self.api().event_create)(&raw mut handle, 0) })?;
        Ok(Event { device: self.clone(), handle })
    }
}

/// Programmatic dependent launch (`CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`): a kernel may begin before the one in front
/// of it is done.
static PROGRAMMATIC_LAUNCH: LaunchAttribute =
    LaunchAttribute { id: 6, padding: 0, value: [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] };

/// The first generation whose kernels can wait for the one before.
const PROGRAMMATIC_LAUNCH_SINCE: u32 = 90;

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

    /// Queues a copy of `bytes` bytes of pinned memory, from byte `offset` on. They must not change until the copy is done.
    pub fn upload(&self, to: Address, from: &Pinned, offset: usize, bytes: usize) -> Result<(), DriverError> {
        let source = &from.bytes()[offset..offset + bytes];
        // SAFETY: the source is pinned and in bounds; device addresses are the business of the device.
        let status =
            unsafe { (self.device.api().copy_to_device)(to.0, source.as_ptr().cast(), bytes, self.handle) };
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
            (self.device.api().copy_to_host)(target.as_mut_ptr().cast(), from.0, bytes, self.handle)
        };
        self.device.check("cuMemcpyDtoHAsync", status)
    }

    /// Queues filling memory with a byte.
    pub fn memset(&self, to: Address, value: u8, bytes: usize) -> Result<(), DriverError> {
        // SAFETY: device addresses are the business of the device.
        let status = unsafe { (self.device.api().set_bytes)(to.0, value, bytes, self.handle) };
        self.device.check("cuMemsetD8Async", status)
    }

    /// Waits until everything queued is done.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        // SAFETY: the stream is alive.
        let status = unsafe { (self.device.api().stream_synchronize)(self.handle) };
        self.device.check("cuStreamSynchronize", status)
    }

    /// Records what `work` queues into this stream instead of running it.
    pub fn capture<E: From<DriverError>>(&self, work: impl FnOnce() -> Result<(), E>) -> Result<Graph, E> {
        let api = &self.device.api();
        // SAFETY: the stream is alive, and nothing else queues into it meanwhile.
        let status = unsafe { (api.capture_begin)(self.handle, CAPTURE_THREAD_LOCAL) };
        self.device.check("cuStreamBeginCapture", status)?;
        let worked = work();
        let (mut graph, mut executable) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: capturing began above; the graph is destroyed once it is instantiated.
        let status = unsafe { (api.capture_end)(self.handle, &raw mut graph) };
        if let Err(error) = worked {
            // SAFETY: the graph of a broken capture is null or the driver's own.
            unsafe { (api.graph_destroy)(graph) };
            return Err(error);
        }
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
        let status = unsafe { (self.device.api().graph_launch)(graph.handle, self.handle) };
        self.device.check("cuGraphLaunch", status)
    }

    /// Queues a mark.
    pub fn record(&self, event: &Event) -> Result<(), DriverError> {
        // SAFETY: both are alive.
        let status = unsafe { (self.device.api().event_record)(event.handle, self.handle) };
        self.device.check("cuEventRecord", status)
    }

    /// Queues a kernel.
    ///
    /// Where the device can, its blocks take their places while the kernel before it ends. Every kernel of this crate waits for that one's
    /// results before it writes anything, and before it reads anything but weights, a step's arrays, and keys and values of earlier steps.
    /// A step's arrays are copied to the device before its first kernel, and a copy waits for all that was queued before it.
    pub fn launch<A: Arguments>(
        &self,
        function: &Function,
        shape: LaunchShape,
        arguments: &A,
    ) -> Result<(), DriverError> {
        debug_assert!(shape.grid.iter().all(|side| *side > 0), "{function:?}: {shape:?}");
        debug_assert_eq!(function.parameter_bytes(), size_of::<A>(), "{function:?} takes another structure");
        let mut parameters = [std::ptr::from_ref(arguments).cast_mut().cast::<c_void>()];
        let config = LaunchConfig {
            grid: shape.grid,
            block: [shape.threads, 1, 1],
            shared_bytes: shape.shared_bytes as c_uint,
            stream: self.handle,
            attributes: &raw const PROGRAMMATIC_LAUNCH,
            attribute_count: c_uint::from(self.device.properties().capability >= PROGRAMMATIC_LAUNCH_SINCE),
        };
        // SAFETY: the kernel takes one structure of type `A`, which the driver copies before it returns.
        let status = unsafe {
            let none = std::ptr::null_mut();
            (self.device.api().launch)(&raw const config, function.handle(), parameters.as_mut_ptr(), none)
        };
        self.device.check("cuLaunchKernelEx", status)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the handle is the driver's own.
        unsafe { (self.device.api().stream_destroy)(self.handle) };
    }
}

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
        let status = unsafe { (self.device.api().event_synchronize)(self.handle) };
        self.device.check("cuEventSynchronize", status)
    }

    /// Seconds between an earlier mark and this one, both of which have passed.
    pub fn seconds_since(&self, earlier: &Event) -> Result<f64, DriverError> {
        let mut milliseconds = 0.0;
        // SAFETY: both events are alive, and the pointer is to a local.
        let status =
            unsafe { (self.device.api().event_elapsed)(&raw mut milliseconds, earlier.handle, self.handle) };
        self.device.check("cuEventElapsedTime", status)?;
        Ok(f64::from(milliseconds) * 1e-3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the handle is the driver's own.
        unsafe { (self.device.api().event_destroy)(self.handle) };
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
        unsafe { (self.device.api().executable_destroy)(self.handle) };
    }
}
