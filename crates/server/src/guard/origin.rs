//! Where a request comes from: the socket's address, or what a trusted proxy says about it.
//!
//! ```text
//! X-Forwarded-For: made-up, 203.0.113.9, 10.0.0.2     peer 10.0.0.1     trusted 10.0.0.0/8
//!                           ^ the rightmost address that is not trusted is the client
//! ```
//! Only what a trusted proxy wrote is believed, and everything left of the first untrusted address was written by others.
//! A client may send the header that its proxy does not write; where `Forwarded` and `X-Forwarded-For` disagree, neither
//! is believed and the request is on the proxy's account.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use axum::http::HeaderMap;

/// A range of addresses, such as `10.0.0.0/8`, `fd00::/8` or `127.0.0.1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    /// Leading bits that count.
    bits: u32,
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no address or network; write 10.0.0.1, 10.0.0.0/8 or fd00::/8");
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u32>().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let address = address.parse::<IpAddr>().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        if bits > most { Err(wrong()) } else { Ok(Self { address, bits }) }
    }
}

impl Network {
    fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differ = u32::from(own) ^ u32::from(other);
                differ.checked_shr(32 - self.bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differ = u128::from(own) ^ u128::from(other);
                differ.checked_shr(128 - self.bits).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// Proxies whose word about their clients is believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(Vec<Network>);

/// Where a request comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The client's address; unknown without a socket.
    pub address: Option<IpAddr>,
    /// Whether it comes from this machine and no proxy stands between.
    pub is_local: bool,
}

/// What forwarding headers say.
enum Told {
    Nothing,
    Client(IpAddr),
    Contradiction,
}

impl TrustedProxies {
    /// These networks.
    pub fn new(networks: Vec<Network>) -> Self {
        Self(networks)
    }

    /// Whether `address` is one of them.
    pub(crate) fn trusts(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }

    /// Where a request on a connection from `peer` comes from.
    pub fn origin(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Origin {
        // Without a socket it was made within this process.
        let Some(peer) = peer.map(|peer| peer.to_canonical()) else {
            return Origin { address: None, is_local: true };
        };
        if !self.trusts(peer) {
            // Whoever forwards for others without being trusted may not lend them its own place.
            let is_local = peer.is_loopback() && !is_forwarded(headers);
            return Origin { address: Some(peer), is_local };
        }
        match self.told(peer, headers) {
            Told::Client(client) => Origin { address: Some(client), is_local: client.is_loopback() },
            Told::Nothing | Told::Contradiction => Origin { address: Some(peer), is_local: false },
        }
    }

    fn told(&self, peer: IpAddr, headers: &HeaderMap) -> Told {
        let chains = [chain(headers, "forwarded", forwarded_for), chain(headers, "x-forwarded-for", address)];
        let mut clients = chains.into_iter().flatten().map(|chain| self.client(peer, &chain));
        match (clients.next(), clients.next()) {
            (None, _) => Told::Nothing,
            (Some(one), Some(other)) if one != other => Told::Contradiction,
            (Some(client), _) => Told::Client(client),
        }
    }

    /// The rightmost address that is not trusted, or the last proxy that is known.
    fn client(&self, peer: IpAddr, chain: &[Option<IpAddr>]) -> IpAddr {
        let mut nearest = peer;
        for hop in chain.iter().rev() {
            match hop {
                Some(address) if self.trusts(*address) => nearest = *address,
                Some(address) => return *address,
                None => return nearest,
            }
        }
        nearest
    }
}

fn is_forwarded(headers: &HeaderMap) -> bool {
    ["forwarded", "x-forwarded-for", "x-real-ip"].iter().any(|name| headers.contains_key(*name))
}

/// The addresses of a header's elements from left to right; `None` for one that is none.
fn chain(headers: &HeaderMap, name: &str, read: fn(&str) -> Option<IpAddr>) -> Option<Vec<Option<IpAddr>>> {
    let lines = headers.get_all(name).iter().map(|line| line.to_str().unwrap_or_default());
    headers.contains_key(name).then(|| lines.flat_map(|line| line.split(',')).map(read).collect())
}

/// The address of an element such as `for="[2001:db8::1]:4711";proto=https`.
fn forwarded_for(element: &str) -> Option<IpAddr> {
    let value = element.split(';').find_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        name.trim().eq_ignore_ascii_case("for").then_some(value.trim())
    })?;
    address(value.trim_matches('"'))
}

/// An address with or without a port.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = match text.strip_prefix('[') {
        Some(rest) => rest.split(']').next()?,
        None if text.matches(':').count() == 1 => text.split(':').next()?,
        None => text,
    };
    bare.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

/// The addresses that one account stands for: an IPv4 address, an IPv6 network of 64 bits, which is what one
/// subscriber gets at least, or this machine under all its names.
pub fn accounted(address: IpAddr) -> IpAddr {
    let address = address.to_canonical();
    match address {
        _ if address.is_loopback() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) & !u128::from(u64::MAX)).into(),
        IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn origin(trusted: &[&str], peer: &str, headers: &[(&'static str, &str)]) -> Origin {
        let proxies = TrustedProxies::new(trusted.iter().map(|text| text.parse().unwrap()).collect());
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        proxies.origin(Some(ip(peer)), &headers.collect())
    }

    fn address_of(trusted: &[&str], peer: &str, headers: &[(&'static str, &str)]) -> String {
        origin(trusted, peer, headers).address.unwrap().to_string()
    }

    #[test]
    fn networks_are_read_and_contain_what_they_should() {
        let contains =
            |network: &str, address: &str| network.parse::<Network>().unwrap().contains(ip(address));
        assert!(contains("10.0.0.0/8", "10.255.0.1") && !contains("10.0.0.0/8", "11.0.0.1"));
        assert!(contains("10.0.0.1", "10.0.0.1") && !contains("10.0.0.1", "10.0.0.2"));
        assert!(contains("0.0.0.0/0", "8.8.8.8") && contains("::/0", "::1") && !contains("::/0", "8.8.8.8"));
        assert!(contains("fd00::/8", "fd12::1") && !contains("fd00::/8", "fe80::1"));
        for wrong in ["", "10.0.0.0/33", "fd00::/129", "10.0.0.0/x", "proxy.example"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_rightmost_untrusted_address_is_the_client() {
        let trusted = ["10.0.0.0/8"];
        let of = |value: &str| address_of(&trusted, "10.0.0.1", &[("x-forwarded-for", value)]);
        assert_eq!(of("203.0.113.9"), "203.0.113.9");
        assert_eq!(of("198.51.100.1, 203.0.113.9, 10.0.0.2"), "203.0.113.9", "what is left of it is made up");
        assert_eq!(of("203.0.113.9:4711"), "203.0.113.9");
        assert_eq!(of("2001:db8::1"), "2001:db8::1");
        assert_eq!(of("::ffff:203.0.113.9"), "203.0.113.9");
        assert_eq!(of("10.0.0.3, 10.0.0.2"), "10.0.0.3", "all of them are trusted");
        assert_eq!(of("203.0.113.9, garbage, 10.0.0.2"), "10.0.0.2", "nothing beyond garbage is believed");
        let lines = [("x-forwarded-for", "198.51.100.1"), ("x-forwarded-for", "203.0.113.9")];
        assert_eq!(address_of(&trusted, "10.0.0.1", &lines), "203.0.113.9");
    }

    #[test]
    fn forwarded_is_read_as_rfc_7239_writes_it() {
        let of = |value: &str| address_of(&["10.0.0.0/8"], "10.0.0.1", &[("forwarded", value)]);
        assert_eq!(of("for=203.0.113.9;proto=https;by=10.0.0.1"), "203.0.113.9");
        assert_eq!(of("For=\"[2001:db8::1]:4711\", for=10.0.0.2"), "2001:db8::1");
        assert_eq!(of("for=_hidden"), "10.0.0.1");
        assert_eq!(of("for=\"unclosed, for=203.0.113.9"), "203.0.113.9");
    }

    #[test]
    fn nobody_else_is_believed_and_contradictions_neither() {
        let headers = [("x-forwarded-for", "198.51.100.1")];
        assert_eq!(address_of(&[], "203.0.113.9", &headers), "203.0.113.9");
        assert_eq!(address_of(&["10.0.0.0/8"], "203.0.113.9", &headers), "203.0.113.9");
        let both = [("x-forwarded-for", "203.0.113.9"), ("forwarded", "for=198.51.100.1")];
        assert_eq!(address_of(&["10.0.0.0/8"], "10.0.0.1", &both), "10.0.0.1");
        let same = [("x-forwarded-for", "203.0.113.9"), ("forwarded", "for=203.0.113.9")];
        assert_eq!(address_of(&["10.0.0.0/8"], "10.0.0.1", &same), "203.0.113.9");
    }

    #[test]
    fn only_who_is_on_this_machine_and_speaks_for_itself_is_local() {
        let told = [("x-forwarded-for", "203.0.113.9")];
        assert!(origin(&[], "127.0.0.1", &[]).is_local && origin(&[], "::1", &[]).is_local);
        assert!(origin(&[], "::ffff:127.0.0.1", &[]).is_local);
        assert!(!origin(&[], "127.0.0.1", &told).is_local, "a proxy that is not known speaks for others");
        assert!(!origin(&["127.0.0.1"], "127.0.0.1", &told).is_local);
        assert!(!origin(&["127.0.0.1"], "127.0.0.1", &[]).is_local, "its proxy does not say for whom");
        assert!(!origin(&[], "10.0.0.1", &[]).is_local);
        assert!(TrustedProxies::default().origin(None, &HeaderMap::new()).is_local);
    }

    #[test]
    fn an_account_is_an_ipv4_address_or_64_bits_of_ipv6() {
        let of = |text: &str| accounted(ip(text));
        assert_eq!(of("2001:db8:1:2::3"), of("2001:db8:1:2:ffff::4"));
        assert_ne!(of("2001:db8:1:2::3"), of("2001:db8:1:3::3"));
        assert_eq!(of("::ffff:203.0.113.9"), of("203.0.113.9"));
        assert_ne!(of("203.0.113.9"), of("203.0.113.8"));
        assert_eq!([of("127.0.0.9"), of("::1")], [ip("127.0.0.1"); 2]);
    }
}
