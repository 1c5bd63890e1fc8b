//! Who is let in: names, origins, keys, what each client may do, and how much it may use.
//!
//! ```text
//! request ─ host, origin (403) ─ key (401) ─ rights of the route (403) ─ concurrency, tokens per minute (429) ─> handler
//! ```
//! All of this is decided before a body is read. What a body asks for beyond one answer is counted where jobs are made,
//! and tokens are booked when they are computed. Must never: write a key anywhere.

pub mod clients;
pub mod host;
pub mod keys;
pub mod limits;
pub mod origin;
pub mod rights;
pub mod salt;
pub mod tenant;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::WWW_AUTHENTICATE;
use axum::http::request::Parts;
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
use clients::{Accounts, Allowance, Owner, Permit};
use host::Hosts;
use keys::{Found, KeyRing};
use origin::{Origin, TrustedProxies};
use rights::{Right, Rights};
use salt::CacheScope;
use tenant::Tenant;

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
    /// Proxies that say for whom they ask.
    pub proxies: TrustedProxies,
    /// Whether all clients share cached prompts, rather than those of the same key.
    pub shares_prefixes: bool,
    /// Whether `/metrics` needs neither a key nor a right.
    pub has_open_metrics: bool,
}

/// A client that was let in.
#[derive(Clone, Debug)]
pub struct Client {
    owner: Owner,
    tenant: Tenant,
    rights: Arc<Rights>,
    cache: CacheScope,
    max_priority: Class,
    allowance: Allowance,
    accounts: Arc<Accounts>,
    /// Its place among the client's own requests, where these are counted.
    permit: Option<Arc<Permit>>,
}

impl Default for Client {
    /// Someone within this process.
    fn default() -> Self {
        Guard::default().client(None, Origin { address: None, is_local: true })
    }
}

impl<S: Sync> FromRequestParts<S> for Client {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<Client>().cloned().unwrap_or_default())
    }
}

impl Client {
    /// Whose account its requests are on.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Whose agents are its own.
    pub fn tenant(&self) -> Tenant {
        self.tenant
    }

    /// What it may do, and with which models.
    pub fn rights(&self) -> &Arc<Rights> {
        &self.rights
    }

    /// Whose cached prompts it shares.
    pub fn cache(&self) -> CacheScope {
        self.cache
    }

    /// Whether it has a right.
    pub fn may(&self, right: Right) -> bool {
        self.rights.may(right)
    }

    /// Turns the client down if a model, which need not be here, does not exist for it.
    pub fn check_model(&self, name: &str) -> Result<(), ApiError> {
        if self.rights.may_use(name) {
            return Ok(());
        }
        let what =
            format!("there is no model {name:?} for your key; its line in the file of keys says models=...");
        Err(ApiError::new(Kind::NotFound, what).about("model").coded("model_not_found"))
    }

    /// Turns the client down if it lacks a right.
    pub fn require(&self, right: Right) -> Result<(), ApiError> {
        if self.may(right) {
            return Ok(());
        }
        let name = right.name();
        let what = match self.owner {
            Owner::Key(_) => format!(
                "your key lacks the right `{name}`; the operator can add the word {name} to its line in the file of keys"
            ),
            Owner::Address(_) | Owner::Anonymous => format!(
                "this needs the right `{name}`, which nobody has here without a key but who asks from the server's own \
                 machine; start the server with --api-keys-file and send a key with the word {name}"
            ),
        };
        Err(ApiError::new(Kind::Forbidden, what).coded("missing_right"))
    }

    /// Counts a request in, or says when to come again.
    fn enter(&mut self) -> Result<(), ApiError> {
        if !self.allowance.is_unlimited() {
            let permit = self.accounts.admit(self.owner, self.allowance, Instant::now())?;
            self.permit = Some(Arc::new(permit));
        }
        Ok(())
    }

    /// Caps what a request asks for, and gives it the client's rights and its place.
    pub fn bound(&self, caller: &mut Caller) {
        caller.class = caller.class.max(self.max_priority);
        caller.permit.clone_from(&self.permit);
        caller.rights = Arc::clone(&self.rights);
    }
}

impl Guard {
    /// Where a request comes from.
    pub fn origin(&self, request: &Request) -> Origin {
        let origin = self.proxies.origin(peer(request), request.headers());
        let is_own_name = self.hosts.is_called_by_its_own_name(request.uri(), request.headers());
        Origin { is_local: origin.is_local && is_own_name, ..origin }
    }

    fn client(&self, key: Option<Found<'_>>, origin: Origin) -> Client {
        let owner = Owner::at(origin.address);
        let anonymous = Client {
            owner,
            tenant: if origin.is_local { Tenant::local() } else { Tenant::of_account(owner) },
            rights: Arc::new(self.rights(key, origin)),
            cache: CacheScope::Shared,
            max_priority: Class::Interactive,
            allowance: self.allowance,
            accounts: Arc::clone(&self.accounts),
            permit: None,
        };
        let Some(Found { number, digest, holder }) = key else { return anonymous };
        Client {
            owner: Owner::Key(number),
            tenant: Tenant::of_key(digest),
            cache: if self.shares_prefixes { CacheScope::Shared } else { CacheScope::of_key(digest) },
            max_priority: holder.max_priority,
            allowance: holder.allowance.or(self.allowance),
            ..anonymous
        }
    }

    /// A key has the rights of its line. Where there are no keys, whoever is on this machine may do everything, and
    /// everyone else may ask and look on, but change nothing.
    fn rights(&self, key: Option<Found<'_>>, origin: Origin) -> Rights {
        let rights = match key {
            Some(found) => found.holder.rights.clone(),
            None if !self.keys.is_empty() => Rights::nothing(),
            None if origin.is_local => Rights::everything(),
            None => Rights::default().with(Right::Metrics),
        };
        if self.has_open_metrics { rights.with(Right::Metrics) } else { rights }
    }

    /// Whether a path may be asked without a key. Nothing is told there that needs one.
    fn is_open(&self, path: &str) -> bool {
        let is_for_everyone = matches!(
            path,
            "/" | "/docs"
                | "/openapi.json"
                | "/health"
                | "/health/live"
                | "/health/ready"
                | "/health/startup"
        );
        is_for_everyone || (self.has_open_metrics && path == "/metrics")
    }

    /// Lets a request in, or says why not.
    fn identify(&self, request: &Request) -> Result<Client, ApiError> {
        self.hosts.check(request.uri(), request.headers())?;
        let key = self.keys.find(request.headers());
        if key.is_none() && !self.keys.is_empty() && !self.is_open(request.uri().path()) {
            let what =
                "this server asks for a key; send it as `Authorization: Bearer KEY` or `x-api-key: KEY`";
            return Err(ApiError::new(Kind::Unauthenticated, what).coded("invalid_api_key"));
        }
        if let (Some(found), Some(progress)) = (key, request.extensions().get::<Progress>()) {
            progress.client(&found.holder.name);
        }
        Ok(self.client(key, self.origin(request)))
    }

    /// Lets the pages of allowed origins read answers.
    pub fn cors(&self) -> Option<CorsLayer> {
        let hosts = self.hosts.clone();
        let allowed = if hosts.lets_every_page_in() {
            AllowOrigin::any()
        } else {
            AllowOrigin::predicate(move |origin, _| origin.to_str().is_ok_and(|origin| hosts.lets_in(origin)))
        };
        self.hosts.lets_pages_in().then(|| {
            CorsLayer::new()
                .allow_origin(allowed)
                .allow_methods([Method::GET, Method::HEAD, Method::POST, Method::DELETE])
                .allow_headers(AllowHeaders::mirror_request())
                .expose_headers([header::HeaderName::from_static("x-request-id"), header::RETRY_AFTER])
        })
    }
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

/// A layer around routes that not everyone may ask.
pub async fn with_right(right: Right, request: Request, next: Next) -> Response {
    let client = request.extensions().get::<Client>().cloned().unwrap_or_default();
    match client.require(right) {
        Ok(()) => next.run(request).await,
        Err(error) => Family::of(request.uri().path()).error(error),
    }
}

/// A layer around routes whose requests count as a client's: from before the body is read until the answer's last byte.
pub async fn counted(mut request: Request, next: Next) -> Response {
    let mut client = request.extensions().get::<Client>().cloned().unwrap_or_default();
    if let Err(error) = client.enter() {
        return Family::of(request.uri().path()).error(error);
    }
    if let (Some(permit), Some(progress)) = (&client.permit, request.extensions().get::<Progress>()) {
        progress.hold(permit);
    }
    request.extensions_mut().insert(client);
    next.run(request).await
}
