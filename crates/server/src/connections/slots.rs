//! How many connections there may be, and how many of them from one address.
//!
//! ```text
//! all slots taken           later clients wait in the system's queue until a connection ends
//! an address has its share  its next connection gets 503 and is closed
//! ```
//! An address is an IPv4 address, or the first 64 bits of an IPv6 address: one line usually has all that begin with these.
//! Loopback addresses and trusted proxies have no share of their own, because many clients stand behind them.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::guard::origin::TrustedProxies;

/// Connections at once where nobody says otherwise.
const DEFAULT_MOST: usize = 4096;

/// What a client hears whose address has its share. A connection has room for these bytes at its beginning.
const REFUSAL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 2\r\nconnection: close\r\n\
    content-type: application/json\r\ncontent-length: 114\r\n\r\n\
    {\"error\":{\"message\":\"your address has as many connections as it may; close some\",\"type\":\"service_unavailable\"}}   ";

/// Longer than proxies keep connections that nobody uses, a minute as a rule: who closes first must be the one who would
/// send next, or requests are lost on the way.
pub const DEFAULT_SILENCE: Duration = Duration::from_secs(75);

/// How many connections there may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// In all.
    pub most: usize,
    /// From one address.
    pub per_address: usize,
    /// Proxies, which have no share of their own.
    pub proxies: TrustedProxies,
    /// How long one may be silent before a request's headers are there.
    pub silence: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self::new(DEFAULT_MOST)
    }
}

impl ConnectionLimits {
    /// So many in all, half of them from one address.
    pub fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            per_address: most.div_ceil(2).max(1),
            proxies: TrustedProxies::default(),
            silence: DEFAULT_SILENCE,
        }
    }

    /// One for each listener at least: a listener holds a slot while it waits for its next connection, and would keep
    /// the others from taking any.
    #[must_use]
    pub fn at_least(self, listeners: usize) -> Self {
        Self { most: self.most.max(listeners), ..self }
    }

    fn has_share(&self, address: IpAddr) -> bool {
        !address.is_loopback() && !self.proxies.trusts(address)
    }
}

/// The connections there are.
pub struct Slots {
    limits: ConnectionLimits,
    free: Arc<Semaphore>,
    by_address: Mutex<HashMap<IpAddr, usize>>,
}

impl Slots {
    /// None is taken.
    pub fn new(limits: ConnectionLimits) -> Arc<Self> {
        let free = Arc::new(Semaphore::new(limits.most.min(Semaphore::MAX_PERMITS)));
        Arc::new(Self { limits, free, by_address: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.by_address.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot for anyone; waits for one.
    async fn any(&self) -> OwnedSemaphorePermit {
        match Arc::clone(&self.free).acquire_owned().await {
            Ok(permit) => permit,
            // It is never closed.
            Err(_) => std::future::pending().await,
        }
    }

    /// The slot for this address, unless it has its share.
    fn assign(self: &Arc<Self>, permit: OwnedSemaphorePermit, peer: IpAddr) -> Option<Slot> {
        let address = line(peer);
        if !self.limits.has_share(peer.to_canonical()) {
            return Some(Slot { _permit: permit, counted: None });
        }
        let mut by_address = self.lock();
        let taken = by_address.entry(address).or_default();
        if *taken >= self.limits.per_address {
            return None;
        }
        *taken += 1;
        drop(by_address);
        Some(Slot { _permit: permit, counted: Some(Counted { slots: Arc::clone(self), address }) })
    }
}

/// What tells one client's line from another's.
fn line(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

/// A connection's slot. Dropping it makes room for the next.
pub struct Slot {
    _permit: OwnedSemaphorePermit,
    #[allow(dead_code, reason = "its end is what counts")]
    counted: Option<Counted>,
}

struct Counted {
    slots: Arc<Slots>,
    address: IpAddr,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut by_address = self.slots.lock();
        if let Some(taken) = by_address.get_mut(&self.address) {
            *taken -= 1;
            if *taken == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}

/// A listener that hands out connections with their slots.
pub struct SlotListener<L> {
    listener: L,
    slots: Arc<Slots>,
    refusal: Refusal,
}

/// What a client is told whose address has its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A 503.
    Answer,
    /// Nothing: the connection would be encrypted.
    Silence,
}

impl<L> SlotListener<L> {
    /// Takes a slot for each connection.
    pub fn new(listener: L, slots: Arc<Slots>, refusal: Refusal) -> Self {
        Self { listener, slots, refusal }
    }
}

impl<L: Listener<Io = TcpStream, Addr = SocketAddr>> Listener for SlotListener<L> {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            let permit = self.slots.any().await;
            let (stream, peer) = self.listener.accept().await;
            if let Some(slot) = self.slots.assign(permit, peer.ip()) {
                // A token must not wait for the acknowledgement of the one before.
                let _ = stream.set_nodelay(true);
                return (Connection { stream, _slot: slot }, peer);
            }
            if self.refusal == Refusal::Answer {
                let _ = stream.try_write(REFUSAL);
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection in its slot.
pub struct Connection {
    stream: TcpStream,
    _slot: Slot,
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    async fn take(slots: &Arc<Slots>, from: &str) -> Option<Slot> {
        slots.assign(slots.any().await, address(from))
    }

    #[tokio::test]
    async fn an_address_has_its_share_and_others_the_rest() {
        let slots = Slots::new(ConnectionLimits::new(4));
        let held = [take(&slots, "10.0.0.1").await, take(&slots, "10.0.0.1").await];
        assert!(held.iter().all(Option::is_some));
        assert!(take(&slots, "10.0.0.1").await.is_none());
        assert!(take(&slots, "::ffff:10.0.0.1").await.is_none(), "the same address in another notation");
        assert!(take(&slots, "10.0.0.2").await.is_some());
        drop(held);
        assert!(take(&slots, "10.0.0.1").await.is_some());
        assert!(slots.lock().is_empty());
        assert_eq!(slots.free.available_permits(), 4);
    }

    #[tokio::test]
    async fn an_ipv6_line_is_one_address_and_proxies_have_no_share() {
        let proxies = TrustedProxies::new(vec!["10.0.0.9".parse().expect("a network")]);
        let slots = Slots::new(ConnectionLimits { proxies, ..ConnectionLimits::new(8) });
        let mut held = Vec::new();
        for host in 1..=4 {
            held.push(take(&slots, &format!("2001:db8::{host}")).await.expect("a slot"));
        }
        assert!(take(&slots, "2001:db8::ffff:1:2").await.is_none());
        assert!(take(&slots, "2001:db8:0:1::1").await.is_some());
        held.clear();
        for from in ["10.0.0.9", "127.0.0.1", "::1"] {
            for _ in 0..8 {
                held.push(take(&slots, from).await.expect("a slot"));
            }
            held.clear();
        }
    }

    #[tokio::test]
    async fn when_all_are_taken_the_next_waits() {
        let slots = Slots::new(ConnectionLimits::new(1));
        let held = take(&slots, "127.0.0.1").await;
        let mut waiting = Box::pin(slots.any());
        assert!((&mut waiting).now_or_never().is_none());
        drop(held);
        drop(waiting.await);
    }

    #[test]
    fn the_refusal_is_a_whole_response() {
        let text = std::str::from_utf8(REFUSAL).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
        assert!(serde_json::from_str::<serde_json::Value>(body).is_ok());
    }
}
