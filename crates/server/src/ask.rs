//! The head of every handler: read the body, find the model, learn who asks and let them in.
//!
//! A request type says where in it these things stand ([`Wire`]); [`Ask::open`] does the rest. It relies on the layers
//! of [`guard`](crate::guard) and [`observe`](crate::observe), which leave behind who asks and what is watched.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::HeaderMap;
use axum::http::header::USER_AGENT;
use serde::de::DeserializeOwned;

use crate::agents::{AgentId, AgentKey, AgentLink};
use crate::app::Shared;
use crate::caller::{self, Caller, Claims};
use crate::embedding::EmbeddingModel;
use crate::error::{ApiError, Kind};
use crate::guard::Client;
use crate::intake::Intake;
use crate::intake::json::parse;
use crate::intake::shape::Field;
use crate::library::{Shelf, demand};
use crate::model::Model;
use crate::observe::Progress;
use crate::offload::{Effort, offload};

/// A request's wire type: where it says which model, for whom and how urgently.
pub trait Wire: DeserializeOwned + Send + 'static {
    /// Its large fields, which are counted while they are read.
    const FIELDS: &'static [Field] = &[];

    /// The model it names; `None` takes the first.
    fn model(&self) -> Option<&str>;

    /// Who asks, as far as the body says.
    fn user(&self) -> Option<&str> {
        None
    }

    /// The session it is part of, where the body says so.
    fn session(&self) -> Option<&str> {
        None
    }

    /// The class it asks for.
    fn priority(&self) -> Option<&str> {
        None
    }

    /// What divides its cached prompts from others of the same client.
    fn cache_salt(&self) -> Option<&str> {
        None
    }
}

/// A request as handlers take it.
pub struct Ask {
    app: Shared,
    headers: HeaderMap,
    body: Body,
    client: Client,
    progress: Progress,
    intake: Intake,
}

/// A request that was read and let in.
pub struct Opened<T> {
    /// What it says.
    pub request: T,
    /// The model it is for.
    pub model: Arc<Model>,
    /// Who asks.
    pub caller: Caller,
}

impl Ask {
    /// Reads the body, finds the model and lets the client in.
    pub async fn open<T: Wire>(mut self) -> Result<Opened<T>, ApiError> {
        let request = self.body().await?;
        self.admit(request).await
    }

    /// Reads the body, once.
    pub async fn body<T: Wire>(&mut self) -> Result<T, ApiError> {
        let body = std::mem::take(&mut self.body);
        let bytes = self.intake.read(&self.app, &self.headers, T::FIELDS, body).await?;
        offload(&self.intake, Effort::Bytes(bytes.len()), move |_| parse(&bytes)).await
    }

    /// Finds the model and lets the client in.
    pub async fn admit<T: Wire>(self, request: T) -> Result<Opened<T>, ApiError> {
        let name = request.model().map(str::to_owned);
        let model = find(&self.app, &self.client, name.as_deref()).await?;
        self.progress.model(&model.name);
        model.lease.renew();
        let caller = self.caller(&request)?;
        Ok(Opened { request, model, caller })
    }

    /// Finds the embedding model and lets the client in.
    pub fn embedding_model(self, request: &impl Wire) -> Result<(Arc<EmbeddingModel>, Caller), ApiError> {
        let names = self.app.models.visible_to(self.client.rights());
        let model = self.app.embeddings.find(request.model(), &names)?;
        self.progress.model(&model.name);
        let caller = self.caller(request)?;
        Ok((model, caller))
    }

    fn caller(self, request: &impl Wire) -> Result<Caller, ApiError> {
        let claims =
            Claims { user: request.user(), priority: request.priority(), cache_salt: request.cache_salt() };
        let mut caller = caller::caller(self.client.owner(), self.client.cache(), &self.headers, claims)?;
        self.client.bound(&mut caller);
        let limits = &self.app.limits;
        (caller.deadline, caller.queue_timeout) = (limits.request_timeout, limits.queue_timeout);
        (caller.limits, caller.progress) = (limits.sizes, self.progress);
        caller.intake = self.intake;
        let tenant = self.client.tenant();
        let id = AgentId::of_request(&self.headers, request.session());
        let link = |id| AgentLink { app: self.app, key: AgentKey { tenant, id }, is_claimed: false };
        caller.agent = id.map(link);
        Ok(caller)
    }

    /// Sets memory aside for so many bytes that are made of its body.
    pub fn cover(&self, bytes: usize) -> Result<(), ApiError> {
        self.intake.cover(bytes)
    }

    /// What the client's program calls itself.
    pub fn user_agent(&self) -> Option<&str> {
        self.headers.get(USER_AGENT)?.to_str().ok()
    }

    /// Who asks.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// What all handlers share.
    pub fn app(&self) -> &Shared {
        &self.app
    }
}

/// Finds the model, loading it first if the operator allows that and it is on disk.
async fn find(app: &Shared, client: &Client, name: Option<&str>) -> Result<Arc<Model>, ApiError> {
    let found = || app.models.visible_to(client.rights()).named(name);
    let may_load = app.shelf.as_ref().is_some_and(Shelf::loads_on_demand);
    match (found(), name) {
        (Err(absent), Some(name)) if may_load && absent.kind == Kind::NotFound => {
            demand::bring(app, client.rights(), name).await?;
            found()
        }
        (found, _) => found,
    }
}

impl FromRequest<Shared> for Ask {
    type Rejection = Infallible;

    async fn from_request(mut request: Request, app: &Shared) -> Result<Self, Infallible> {
        let headers = std::mem::take(request.headers_mut());
        let client = request.extensions().get::<Client>().cloned().unwrap_or_default();
        let progress = request.extensions().get::<Progress>().cloned().unwrap_or_default();
        let intake = Intake::new(client.owner());
        Ok(Self { app: Shared::clone(app), headers, body: request.into_body(), client, progress, intake })
    }
}
