//! A proxy in front of a server that does to connections what networks and crashing servers do.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// What happens to answers.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// Nothing.
    None,
    /// Each piece of an answer comes so much later.
    Delay(Duration),
    /// The connection is closed after so many bytes of answers to `POST`.
    CutAfter(usize),
    /// It is reset, as by a process that was killed.
    ResetAfter(usize),
    /// Nothing comes any more, and the connection stays open.
    StallAfter(usize),
    /// A web page comes in place of every answer.
    Page,
}

impl Fault {
    /// Bytes of answers that pass before it happens.
    fn most(self) -> Option<usize> {
        match self {
            Fault::CutAfter(most) | Fault::ResetAfter(most) | Fault::StallAfter(most) => Some(most),
            Fault::None | Fault::Delay(_) | Fault::Page => None,
        }
    }
}

/// A proxy that ends with the test.
pub struct Proxy {
    pub address: SocketAddr,
    fault: Arc<Mutex<Fault>>,
}

const PAGE: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 27\r\n\r\n<html>please log in</html>\n";

impl Proxy {
    /// Stands in front of a server.
    pub fn before(server: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let fault = Arc::new(Mutex::new(Fault::None));
        let shared = Arc::clone(&fault);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let fault = Arc::clone(&shared);
                thread::spawn(move || pass(client, server, &fault));
            }
        });
        Proxy { address, fault }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on this happens.
    pub fn set(&self, fault: Fault) {
        *self.fault.lock().unwrap() = fault;
    }
}

fn pass(mut client: TcpStream, server: SocketAddr, fault: &Arc<Mutex<Fault>>) {
    let Ok(mut upstream) = TcpStream::connect(server) else { return };
    let (mut from, mut to) = (client.try_clone().unwrap(), upstream.try_clone().unwrap());
    let posts = Arc::new(Mutex::new(false));
    let asks = Arc::clone(&posts);
    let asking = thread::spawn(move || {
        let mut bytes = [0; 16 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            *asks.lock().unwrap() |= bytes[..count].starts_with(b"POST");
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
    let (mut bytes, mut answered) = ([0; 16 << 10], 0);
    while let Ok(count @ 1..) = upstream.read(&mut bytes) {
        let fault = *fault.lock().unwrap();
        if let Fault::Delay(time) = fault {
            thread::sleep(time);
        }
        if let Fault::Page = fault {
            let _ = client.write_all(PAGE.as_bytes());
            break;
        }
        // Only what answers a `POST` counts: probes are left alone.
        let most = fault.most().filter(|_| *posts.lock().unwrap());
        let passed = most.map_or(count, |most| count.min(most.saturating_sub(answered)));
        answered += if most.is_some() { passed } else { 0 };
        if client.write_all(&bytes[..passed]).is_err() {
            break;
        }
        if passed < count {
            match fault {
                Fault::ResetAfter(_) => return reset(client, asking),
                Fault::StallAfter(_) => return thread::sleep(Duration::from_secs(600)),
                _ => break,
            }
        }
    }
    let _ = client.shutdown(Shutdown::Both);
    let _ = upstream.shutdown(Shutdown::Both);
}

/// Ends a connection without a farewell: that happens once nobody holds it any more.
fn reset(client: TcpStream, asking: JoinHandle<()>) {
    use nix::sys::socket::{setsockopt, sockopt::Linger};
    let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    setsockopt(&client, Linger, &linger).unwrap();
    let _ = client.shutdown(Shutdown::Read);
    asking.join().unwrap();
    drop(client);
}
