//! Who is let in: names, origins, keys, and how much each client may use.
//!
//! ```text
//! request ─ host, origin (403) ─ key (401) ─> handler ─ admit: concurrency, tokens per minute (429), class capped ─> job
//! ```
//! Everything is decided before a body is read, but for what a client uses, which is booked where jobs are made. Must
//! never: write a key anywhere.

pub mod clients;
pub mod host;
pub mod keys;
pub mod limits;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::header::WWW_AUTHENTICATE;
use axum::http::{HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::Response;
use ropeway_engine::Class;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use crate::app::Shared;
use crate::caller::Caller;
use crate::error::{ApiError, Kind};
use crate::family::Family;
use crate::observe::Progress;
use crate::serve::peer;
use clients::{Accounts, Allowance, Owner};
use host::Hosts;
use keys::{Holder, KeyRing};

/// Who is let in.
#[derive(Debug, Default)]
pub struct Guard {
    /// Names and origins.
    pub hosts: Hosts,
    /// Keys.
    pub keys: KeyRing,
    /// What a client may use unless its key says otherwise.
    pub allowance: Allowance,
    /// What clients use.
    pub accounts: Arc<Accounts>,
}

/// A client that was let in.
#[derive(Clone, Debug)]
pub struct Client {
    owner: Owner,
    max_priority: Class,
    allowance: Allowance,
    accounts: Arc<Accounts>,
    administers: bool,
}

impl Default for Client {
    fn default() -> Self {
        Guard::default().client(None, None)
    }
}

impl Client {
    /// Whose account its requests are on.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Whether it may do what is the operator's, such as unloading their models: where keys are asked for, no key can yet.
    pub fn may_administer(&self) -> bool {
        self.administers
    }

    /// Counts a request in, or turns it down; caps its class.
    pub fn admit(&self, caller: &mut Caller) -> Result<(), ApiError> {
        caller.class = caller.class.max(self.max_priority);
        if !self.allowance.is_unlimited() {
            let permit = self.accounts.admit(self.owner, self.allowance, Instant::now())?;
            caller.permit = Some(Arc::new(permit));
        }
        Ok(())
    }
}

impl Guard {
    fn client(&self, key: Option<(usize, &Holder)>, address: Option<IpAddr>) -> Client {
        let by_address = || address.map_or(Owner::Anonymous, Owner::Address);
        let (owner, max_priority, own) = match key {
            Some((number, holder)) => (Owner::Key(number), holder.max_priority, holder.allowance),
            None => (by_address(), Class::Interactive, Allowance::default()),
        };
        let allowance = own.or(self.allowance);
        let (accounts, administers) = (Arc::clone(&self.accounts), self.keys.is_empty());
        Client { owner, max_priority, allowance, accounts, administers }
    }

    /// Lets a request in, or says why not.
    fn identify(&self, request: &Request) -> Result<Client, ApiError> {
        self.hosts.check(request.uri(), request.headers())?;
        let key = self.keys.find(request.headers());
        if key.is_none() && !self.keys.is_empty() && !is_open(request.uri().path()) {
            let what =
                "this server asks for a key; send it as `Authorization: Bearer KEY` or `x-api-key: KEY`";
            return Err(ApiError::new(Kind::Unauthenticated, what).coded("invalid_api_key"));
        }
        if let (Some((_, holder)), Some(progress)) = (key, request.extensions().get::<Progress>()) {
            progress.client(&holder.name);
        }
        Ok(self.client(key, peer(request)))
    }

    /// Lets the pages of allowed origins read answers.
    pub fn cors(&self) -> Option<CorsLayer> {
        let origins = self.hosts.origins();
        let allowed = if origins.iter().any(|origin| origin == "*") {
            AllowOrigin::any()
        } else {
            AllowOrigin::list(origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()))
        };
        (!origins.is_empty()).then(|| {
            CorsLayer::new()
                .allow_origin(allowed)
                .allow_methods([Method::GET, Method::HEAD, Method::POST, Method::DELETE])
                .allow_headers(AllowHeaders::mirror_request())
                .expose_headers([header::HeaderName::from_static("x-request-id"), header::RETRY_AFTER])
        })
    }
}

/// Paths for those who watch over the server, for probes and for readers: nothing is told there that needs a key.
fn is_open(path: &str) -> bool {
    matches!(
        path,
        "/" | "/docs" | "/openapi.json" | "/health" | "/health/live" | "/health/ready" | "/health/startup"
    )
}

/// The layer: lets requests in or answers them in their family's shape.
pub async fn admit(State(app): State<Shared>, mut request: Request, next: Next) -> Response {
    match app.guard.identify(&request) {
        Ok(client) => {
            request.extensions_mut().insert(client);
            next.run(request).await
        }
        Err(error) => {
            let asks = error.kind == Kind::Unauthenticated;
            let mut response = Family::of(request.uri().path()).error(error);
            if asks {
                response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            response
        }
    }
}
